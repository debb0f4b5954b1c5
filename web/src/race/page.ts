// The race's section: reads the streams beside the page and shows them, or says why there are none.

import { TraceError } from "../trace/error";
import { tableBeside } from "../view/beside";
import { element } from "../view/dom";
import { type RacePlace, raceFromHash } from "./address";
import { racesFrom } from "./data";
import { RaceView } from "./view";

export interface RaceSection {
  /** Shows what the address names, and scrolls there if it names a race. */
  follow(): void;
}

/** Shows the race; `moved` hears where it stands. Null if there is none. */
export async function showRace(moved: (place: RacePlace) => void): Promise<RaceSection | null> {
  const file = await tableBeside("race.json");
  const none = (words: string) => {
    element("race-none").textContent = words;
    element("race-none").hidden = false;
    element("race-body").hidden = true;
    return null;
  };
  element("race").hidden = false;
  if (file === null) return none("No run so far has timed single tokens.");
  try {
    const races = racesFrom(file);
    const [first] = races.races;
    if (!first) return none(races.missing.map((line) => `${line}.`).join(" "));
    const view: RaceView = new RaceView(races, first, () => moved(view.place()));
    const follow = () => {
      const place = raceFromHash(window.location.hash);
      if (place === null) return;
      if (view.goTo(place)) element("race").scrollIntoView();
      else element("race-said").textContent = "The race that the address names is not here.";
    };
    follow();
    return { follow };
  } catch (error) {
    if (!(error instanceof TraceError)) throw error;
    return none(
      `data/race.json was refused: ${error.message}. Create it again with cargo xtask page-data.`,
    );
  }
}
