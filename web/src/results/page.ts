// The page below the chart: budget, results, positions, losses, code.

import { element } from "../view/dom";
import { showBudget } from "./budget";
import { dataBeside } from "./data";
import { showLosses } from "./losses";
import { showSweep } from "./sweep";
import { showTables } from "./table";
import { showTour } from "./tour";

/** Shows what the build holds, then what is measured, if that is beside the page. */
export async function showResults(find: (query: string) => void): Promise<void> {
  showTour(element("tour"), find);
  const data = await dataBeside();
  for (const section of document.querySelectorAll<HTMLElement>(".measured")) {
    section.hidden = data === null;
  }
  if (!data) return;
  if (data.tokens.some(({ of }) => of !== null)) showBudget(element("bars"), data);
  else element("budget").hidden = true;
  showTables(element("speeds"), data.runs);
  showSweep(element("sweep"), data);
  showLosses(element("losses"), data);
}
