//! The state file of an unfinished measurement: after an interruption the measurement continues.

use super::{Measured, PromptTokens, WindowScore, stem};
use crate::files::write_whole;
use crate::{HarnessError, Progress};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The finished windows and prompts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct State {
    /// The measurement that they belong to.
    pub measured: Measured,
    /// The windows, in order.
    pub windows: Vec<WindowScore>,
    /// The KL divergences of the compared positions, in order.
    pub kl: Vec<f64>,
    /// The tokens after each prompt, in order.
    pub prompts: Vec<PromptTokens>,
}

impl State {
    /// Reads the state that an earlier call left. A missing or damaged file, or one of another
    /// measurement, gives an empty state. Reports which.
    ///
    /// # Errors
    /// A file that exists and cannot be read.
    pub fn open(
        folder: &Path,
        measured: &Measured,
        progress: &mut Progress,
    ) -> Result<State, HarnessError> {
        let fresh = State {
            measured: measured.clone(),
            windows: Vec::new(),
            kl: Vec::new(),
            prompts: Vec::new(),
        };
        let path = path(folder, measured);
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(fresh),
            Err(error) => return Err(HarnessError::io(&path)(error)),
        };
        let name = path.display();
        let Ok(state) = serde_json::from_slice::<State>(&text) else {
            progress(&format!("{name} is damaged: starting over"));
            return Ok(fresh);
        };
        let mut differ = state.measured.differences(measured);
        if !state.is_whole() {
            differ.push("make");
        }
        if differ.is_empty() {
            let (windows, prompts) = (state.windows.len(), state.prompts.len());
            progress(&format!("continuing after {windows} windows and {prompts} prompts ({name})"));
            return Ok(state);
        }
        let differ = differ.join(", ");
        progress(&format!("{name} is of another measurement ({differ}): starting over"));
        Ok(fresh)
    }

    fn is_whole(&self) -> bool {
        let compared = self.windows.iter().map(|window| window.compared);
        self.kl.len() == compared.fold(0, usize::saturating_add)
    }

    /// Writes the file, whole or not at all.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn save(&self, folder: &Path) -> Result<(), HarnessError> {
        let text = serde_json::to_string(self).expect("a state is JSON");
        write_whole(&path(folder, &self.measured), &text)
    }

    /// Removes the file, once the record holds everything.
    ///
    /// # Errors
    /// A file that cannot be removed.
    pub fn remove(&self, folder: &Path) -> Result<(), HarnessError> {
        let path = path(folder, &self.measured);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(HarnessError::io(&path)(error))
            }
            _ => Ok(()),
        }
    }
}

fn path(folder: &Path, measured: &Measured) -> PathBuf {
    folder.join(format!("{}.state", stem(&measured.candidate)))
}
