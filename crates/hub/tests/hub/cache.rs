//! What lands in the cache, and what is served from it.

use std::path::Path;

use monolith_hub::{Error, Files, pull};

use crate::repo::{COMMIT, Log, Repo, named, pull_model, pull_named, request, settings, tree};
use crate::server::{Reply, Server};

fn serve(repo: Repo) -> Server {
    Server::start(move |request, _| repo.answer(request))
}

#[test]
fn a_model_lands_in_the_layout_of_the_hubs_own_tools() {
    let (hub, cache) = (serve(Repo::default()), tempfile::tempdir().unwrap());
    let snapshot = pull_model(&settings(cache.path(), &hub.url)).unwrap();
    assert_eq!(snapshot.commit, COMMIT);
    assert_eq!(snapshot.files, ["config.json", "model.safetensors", "tokenizer.json"]);
    assert_eq!(snapshot.downloaded, 3);

    let repo = cache.path().join("models--org--model");
    assert_eq!(snapshot.dir, repo.join("snapshots").join(COMMIT));
    assert_eq!(std::fs::read_to_string(repo.join("refs/main")).unwrap(), COMMIT);
    assert_eq!(tree(&snapshot.dir), snapshot.files);
    for (name, bytes) in Repo::default().0 {
        let path = snapshot.dir.join(name);
        if path.exists() {
            assert_eq!(std::fs::read(&path).unwrap(), bytes);
            let link = std::fs::read_link(&path).unwrap();
            assert!(link.starts_with("../../blobs"), "{link:?}");
        }
    }
    let left: Vec<_> = tree(cache.path())
        .into_iter()
        .filter(|p| p.contains("incomplete") || p.contains("tmp"))
        .collect();
    assert_eq!(left, [""; 0]);
}

#[test]
fn files_in_folders_and_empty_files() {
    let (hub, cache) = (serve(Repo::default()), tempfile::tempdir().unwrap());
    let names = ["sub/extra.bin", "empty.txt", "empty.txt"];
    let snapshot = pull_named(&settings(cache.path(), &hub.url), &names).unwrap();
    assert_eq!(snapshot.files, ["empty.txt", "sub/extra.bin"]);
    assert_eq!(std::fs::read(snapshot.dir.join("sub/extra.bin")).unwrap(), b"extra");
    assert_eq!(std::fs::read(snapshot.dir.join("empty.txt")).unwrap(), b"");
}

#[test]
fn a_second_pull_downloads_nothing() {
    let (hub, cache) = (serve(Repo::default()), tempfile::tempdir().unwrap());
    let settings = settings(cache.path(), &hub.url);
    pull_model(&settings).unwrap();
    let before = hub.requests().len();
    let again = pull_model(&settings).unwrap();
    assert_eq!(again.downloaded, 0);
    assert_eq!(hub.requests().len(), before + 1, "the branch is looked up, no more");

    // A commit cannot have changed, so its named files need no connection at all.
    let pinned = request(COMMIT, named(&["config.json"]));
    assert_eq!(pull(&pinned, &settings, &mut ()).unwrap().dir, again.dir);
    assert_eq!(hub.requests().len(), before + 1);
}

#[test]
fn a_commit_is_pulled_without_a_reference() {
    let (hub, cache) = (serve(Repo::default()), tempfile::tempdir().unwrap());
    let pinned = request(COMMIT, Files::Model);
    let snapshot = pull(&pinned, &settings(cache.path(), &hub.url), &mut ()).unwrap();
    assert_eq!(snapshot.commit, COMMIT);
    assert!(!cache.path().join("models--org--model/refs").exists());
}

#[test]
fn a_revision_with_slashes_is_one_part_of_the_address() {
    let (hub, cache) = (serve(Repo::default()), tempfile::tempdir().unwrap());
    let request = request("refs/pr/1", named(&["config.json"]));
    pull(&request, &settings(cache.path(), &hub.url), &mut ()).unwrap();
    assert_eq!(hub.count("GET", "/revision/refs%2Fpr%2F1"), 1);
    assert!(cache.path().join("models--org--model/refs/refs/pr/1").is_file());
}

#[test]
fn offline_serves_what_was_pulled_and_connects_to_nothing() {
    let (hub, cache) = (serve(Repo::default()), tempfile::tempdir().unwrap());
    let mut settings = settings(cache.path(), &hub.url);
    let online = pull_model(&settings).unwrap();
    let before = hub.requests().len();
    settings.offline = true;
    let offline = pull_model(&settings).unwrap();
    assert_eq!((offline.dir, offline.files), (online.dir, online.files));
    assert_eq!(pull_named(&settings, &["config.json"]).unwrap().commit, COMMIT);
    assert_eq!(hub.requests().len(), before);
}

#[test]
fn offline_names_what_is_missing_and_the_cure() {
    let (hub, cache) = (serve(Repo::default()), tempfile::tempdir().unwrap());
    let mut settings = settings(cache.path(), &hub.url);
    let missing = |settings: &_, names: Option<&[&str]>| {
        let result =
            names.map_or_else(|| pull_model(settings), |names| pull_named(settings, names));
        let error = result.unwrap_err();
        assert!(error.to_string().contains("HF_HUB_OFFLINE"), "{error}");
        match error {
            Error::NotCached { file, .. } => file,
            other => panic!("{other}"),
        }
    };
    settings.offline = true;
    assert_eq!(missing(&settings, None), "config.json");
    assert_eq!(missing(&settings, Some(&["README.md"])), "README.md");
    assert!(hub.requests().is_empty());

    settings.offline = false;
    let snapshot = pull_model(&settings).unwrap();
    settings.offline = true;
    assert_eq!(missing(&settings, Some(&["config.json", "README.md"])), "README.md");
    // A link whose blob is gone is a missing file.
    std::fs::remove_file(std::fs::canonicalize(snapshot.dir.join("model.safetensors")).unwrap())
        .unwrap();
    assert_eq!(missing(&settings, None), "model.safetensors");
}

#[test]
fn weights_in_parts_are_complete_with_every_part() {
    let part = "model-00001-of-00001.safetensors";
    let mut repo = Repo::default();
    let weights = repo.0.remove("model.safetensors").unwrap();
    repo.0.insert(part, weights);
    let index = format!(r#"{{"weight_map": {{"a": "{part}", "b": "{part}"}}}}"#);
    repo.0.insert("model.safetensors.index.json", index.into_bytes());
    let (hub, cache) = (serve(repo), tempfile::tempdir().unwrap());
    let mut settings = settings(cache.path(), &hub.url);
    let snapshot = pull_model(&settings).unwrap();
    assert!(snapshot.files.iter().any(|file| file == part));

    settings.offline = true;
    pull_model(&settings).unwrap();
    std::fs::remove_file(snapshot.dir.join(part)).unwrap();
    let error = pull_model(&settings).unwrap_err();
    assert!(matches!(error, Error::NotCached { file, .. } if file == part));
}

#[test]
fn a_repository_that_is_no_model_is_refused_before_any_download() {
    for (absent, named) in [
        ("config.json", "config.json"),
        ("tokenizer.json", "tokenizer.json"),
        ("model.safetensors", "model.safetensors"),
    ] {
        let mut repo = Repo::default();
        repo.0.remove(absent);
        let (hub, cache) = (serve(repo), tempfile::tempdir().unwrap());
        let error = pull_model(&settings(cache.path(), &hub.url)).unwrap_err();
        assert!(matches!(error, Error::FileNotFound { file, .. } if file == named));
        assert_eq!(hub.requests().len(), 1);
    }
}

#[test]
fn names_that_leave_the_cache_go_nowhere() {
    let cache = tempfile::tempdir().unwrap();
    // A hub that lists such names, under names that would be wanted.
    let evil = ["../../../evil.safetensors", "/evil.safetensors", "tokenizer/../../../evil"];
    let hub = Server::start(move |request, _| {
        let mut repo = Repo::default();
        repo.0.extend(evil.map(|name| (name, b"evil".to_vec())));
        repo.answer(request)
    });
    let settings = settings(cache.path(), &hub.url);
    let snapshot = pull_model(&settings).unwrap();
    assert_eq!(snapshot.files.len(), 3);
    assert!(tree(cache.path()).iter().all(|path| !path.contains("evil")));

    let before = hub.requests().len();
    for name in evil {
        assert!(matches!(pull_named(&settings, &[name]), Err(Error::Invalid { .. })));
    }
    assert_eq!(hub.requests().len(), before);
}

#[test]
fn a_hub_that_answers_nonsense_is_named() {
    let cache = tempfile::tempdir().unwrap();
    for body in ["", "<html>", "{}", r#"{"sha": "../../x", "siblings": []}"#] {
        let hub = Server::start(move |_, _| Reply::ok(body));
        let error = pull_model(&settings(cache.path(), &hub.url)).unwrap_err();
        assert!(matches!(error, Error::BadReply { .. }), "{error}");
        assert!(error.to_string().contains("/api/models/org/model/revision/main"), "{error}");
    }
}

#[test]
fn progress_tells_the_plan_and_reaches_the_end() {
    let (hub, cache) = (serve(Repo::default()), tempfile::tempdir().unwrap());
    let mut log = Log::default();
    pull(&request("main", Files::Model), &settings(cache.path(), &hub.url), &mut log).unwrap();
    assert_eq!(log.planned, [(3, 300_020)]);
    let last = log.advanced.last().unwrap();
    assert_eq!(*last, ("model.safetensors".to_owned(), 300_000, 300_000));
    assert!(log.advanced.iter().all(|(_, done, total)| done <= total));
    assert!(log.pauses.is_empty());
}

#[test]
fn pulls_at_the_same_time_share_the_work() {
    let (hub, cache) = (serve(Repo::default()), tempfile::tempdir().unwrap());
    let settings = settings(cache.path(), &hub.url);
    std::thread::scope(|scope| {
        let pulls: Vec<_> =
            (0..4).map(|_| scope.spawn(|| pull_model(&settings).unwrap())).collect();
        for pull in pulls {
            assert_eq!(pull.join().unwrap().files.len(), 3);
        }
    });
    assert_eq!(hub.count("GET", "model.safetensors"), 1);
}

#[test]
fn a_cache_that_cannot_be_written_is_named() {
    let hub = serve(Repo::default());
    let file = tempfile::NamedTempFile::new().unwrap();
    let error = pull_model(&settings(&file.path().join("cache"), &hub.url)).unwrap_err();
    assert!(matches!(&error, Error::Disk { path, .. } if path.starts_with(Path::new(file.path()))));
}
