//! What is measured already, beside the record to come: a measurement that was ended goes on.

use super::{Measured, PromptScore, WindowScore, stem};
use crate::{HarnessError, Progress};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// What is measured already.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct State {
    /// What it is of.
    pub measured: Measured,
    /// The windows, in order.
    pub windows: Vec<WindowScore>,
    /// The compared positions' divergences, in order.
    pub kl: Vec<f64>,
    /// The prompts, in order.
    pub prompts: Vec<PromptScore>,
}

impl State {
    /// What an earlier call left, if it is of the same; else a beginning. Says which.
    ///
    /// # Errors
    /// A file that is there and cannot be read.
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
            progress(&format!("{name} cannot be read: starting over"));
            return Ok(fresh);
        };
        let mut differ = state.measured.differences(measured);
        if !state.is_whole() {
            differ.push("make");
        }
        if differ.is_empty() {
            let (windows, prompts) = (state.windows.len(), state.prompts.len());
            progress(&format!("going on after {windows} windows and {prompts} prompts ({name})"));
            return Ok(state);
        }
        let differ = differ.join(", ");
        progress(&format!("{name} is of another measurement ({differ}): starting over"));
        Ok(fresh)
    }

    fn is_whole(&self) -> bool {
        self.kl.len() == self.windows.iter().map(|window| window.compared).sum::<usize>()
    }

    /// Keeps what is measured, whole or not at all.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn save(&self, folder: &Path) -> Result<(), HarnessError> {
        let text = serde_json::to_string(self).expect("a state is JSON");
        crate::record::write_whole(&path(folder, &self.measured), &text)
    }

    /// Takes the file away: everything is in the record.
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
