//! The hub: its settings, and its cache on this machine.

use crate::exit::{Code, Exit, OrExit};
use monolith_hub::{Error, Files, PullRequest, RepoId, Revision, Settings};
use std::path::PathBuf;

/// Reads the hub's settings from the environment.
///
/// # Errors
/// Code 2 for an invalid variable.
pub fn settings() -> Result<Settings, Exit> {
    Settings::from_env(|name| std::env::var(name).ok()).map_err(|error| {
        let code = match error {
            Error::Invalid { .. } | Error::BadToken { .. } => Code::Usage,
            _ => Code::Failure,
        };
        Exit::new(code, error)
    })
}

/// Looks up a name in the hub's cache, and returns the folder and its commit. It downloads nothing.
///
/// # Errors
/// Code 4 for a model that is not in the cache, code 2 for an impossible name.
pub fn cached_snapshot(repo: &str, revision: &str) -> Result<(PathBuf, String), Exit> {
    let mut settings = settings()?;
    settings.offline = true;
    let request = PullRequest {
        repo: repo.parse::<RepoId>().or_exit(Code::Usage)?,
        revision: revision.parse::<Revision>().or_exit(Code::Usage)?,
        files: Files::Model,
    };
    let snapshot = monolith_hub::pull(&request, &settings, &mut ()).map_err(|error| {
        let Error::NotCached { cache, .. } = error else { return Exit::from(error) };
        let at = if revision == "main" { "" } else { &format!(" --revision {revision}") };
        let what = format!(
            "{repo} is neither a folder here nor in the cache {}: `monolith pull {repo}{at}` \
             downloads it",
            cache.display()
        );
        Exit::message(Code::NoModel, what)
    })?;
    Ok((snapshot.dir, snapshot.commit))
}
