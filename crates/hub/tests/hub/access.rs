//! Refusals, and where the token goes.

use std::time::Duration;

use monolith_hub::{Error, TokenUse, pull};

use crate::repo::{
    COMMIT, Log, Repo, TOKEN, checked, etag, named, pull_model, pull_named, request, settings,
};
use crate::server::{Reply, Request, Server};

fn bearer(request: &Request) -> Option<&str> {
    request.headers.get("authorization").map(String::as_str)
}

#[test]
fn the_token_goes_to_the_hub_and_not_past_a_redirect() {
    let repo = Repo::default();
    let weights = repo.0["model.safetensors"].clone();
    let stored = weights.clone();
    let cdn = Server::start(move |request, _| Reply::ranged(&stored, request));
    let location = format!("{}/blob?signature=abc", cdn.url);
    let hub = Server::start(move |request, _| match repo.file(request) {
        Some((name, bytes)) if name.ends_with(".safetensors") => Reply::new(302)
            .header("Location", &location)
            .header("X-Linked-ETag", etag(name, bytes))
            .header("X-Linked-Size", bytes.len().to_string())
            .header("ETag", "\"something-else\""),
        _ => repo.answer(request),
    });
    let cache = tempfile::tempdir().unwrap();
    let snapshot = pull_model(&settings(cache.path(), &hub.url)).unwrap();
    assert_eq!(std::fs::read(snapshot.dir.join("model.safetensors")).unwrap(), weights);

    let expected = format!("Bearer {TOKEN}");
    assert!(hub.requests().iter().all(|request| bearer(request) == Some(&expected)));
    assert_eq!(cdn.requests().len(), 1, "asked for the contents, not for what is known of them");
    assert!(cdn.requests().iter().all(|request| bearer(request).is_none()));
}

#[test]
fn redirects_within_the_hub_keep_the_token() {
    let repo = Repo::default();
    let hub = Server::start(move |request, _| {
        if let Some((name, _)) = repo.file(request).filter(|(name, _)| *name == "config.json") {
            return Reply::new(307).header("Location", format!("/elsewhere/{name}"));
        }
        if request.path.starts_with("/elsewhere/") {
            let bytes = &repo.0["config.json"];
            return Reply::ok(bytes.clone()).header("ETag", etag("config.json", bytes));
        }
        repo.answer(request)
    });
    let cache = tempfile::tempdir().unwrap();
    pull_named(&settings(cache.path(), &hub.url), &["config.json"]).unwrap();
    let elsewhere: Vec<_> =
        hub.requests().into_iter().filter(|r| r.path.starts_with("/elsewhere/")).collect();
    assert_eq!(elsewhere.len(), 2);
    assert!(elsewhere.iter().all(|request| bearer(request).is_some()));
}

#[test]
fn without_a_token_none_is_sent() {
    let repo = Repo::default();
    let hub = Server::start(move |request, _| repo.answer(request));
    let cache = tempfile::tempdir().unwrap();
    let mut settings = settings(cache.path(), &hub.url);
    settings.token = None;
    pull_model(&settings).unwrap();
    assert!(hub.requests().iter().all(|request| bearer(request).is_none()));
}

#[test]
fn redirects_without_end_end() {
    let hub = Server::start(|request, _| Reply::new(302).header("Location", &request.path));
    let cache = tempfile::tempdir().unwrap();
    let error = pull_model(&settings(cache.path(), &hub.url)).unwrap_err();
    assert!(error.to_string().contains("redirects without end"), "{error}");
}

#[test]
fn refusals_say_what_to_do() {
    for (status, token, cure) in [
        (401, TokenUse::Sent, "the token is wrong"),
        (403, TokenUse::Sent, "accept its terms"),
        (401, TokenUse::None, "set HF_TOKEN"),
        (401, TokenUse::None, "token files, such as the one of `hf auth login`, are not read"),
        (403, TokenUse::None, "set HF_TOKEN"),
        (401, TokenUse::Withheld, "not sent, since HF_HUB_DISABLE_IMPLICIT_TOKEN is set"),
    ] {
        let hub = Server::start(move |_, _| Reply::new(status));
        let cache = tempfile::tempdir().unwrap();
        let mut settings = settings(cache.path(), &hub.url);
        settings.token_withheld = token == TokenUse::Withheld;
        settings.token = settings.token.filter(|_| token == TokenUse::Sent);
        let error = pull_model(&settings).unwrap_err();
        assert!(matches!(error, Error::Denied { status: got, .. } if got == status));
        assert!(error.to_string().contains(cure), "{error}");
        assert_eq!(hub.requests().len(), 1, "not worth a second try");
    }
}

#[test]
fn a_gated_file_is_a_refusal_too() {
    let repo = Repo::default();
    let hub = Server::start(move |request, _| match repo.file(request) {
        Some(_) => Reply::new(403).header("X-Error-Code", "GatedRepo"),
        None => repo.answer(request),
    });
    let cache = tempfile::tempdir().unwrap();
    let error = pull_model(&settings(cache.path(), &hub.url)).unwrap_err();
    assert!(matches!(error, Error::Denied { status: 403, token: TokenUse::Sent, .. }), "{error}");
}

#[test]
fn what_is_not_found_is_told_apart() {
    let cache = tempfile::tempdir().unwrap();
    let hub = Server::start(|request, _| {
        let code =
            if request.path.ends_with("/gone") { "RevisionNotFound" } else { "RepoNotFound" };
        Reply::new(404).header("X-Error-Code", code)
    });
    let settings_ = settings(cache.path(), &hub.url);
    assert!(matches!(pull_model(&settings_), Err(Error::RepoNotFound { .. })));
    let gone = checked(pull(&request("gone", named(&["x"])), &settings_, &mut ()));
    assert!(matches!(gone, Err(Error::RevisionNotFound { revision, .. }) if revision == "gone"));

    let repo = Repo::default();
    let hub = Server::start(move |request, _| repo.answer(request));
    let settings_ = settings(cache.path(), &hub.url);
    let error = pull_named(&settings_, &["config.json", "no.such"]).unwrap_err();
    assert!(matches!(&error, Error::FileNotFound { file, .. } if file == "no.such"), "{error}");
    assert_eq!(hub.requests().len(), 1, "known before anything is downloaded");
}

#[test]
fn a_listed_file_that_is_gone_is_not_found() {
    let repo = Repo::default();
    let hub = Server::start(move |request, _| match repo.file(request) {
        Some(_) => Reply::new(404),
        None => repo.answer(request),
    });
    let cache = tempfile::tempdir().unwrap();
    let error = pull_named(&settings(cache.path(), &hub.url), &["config.json"]).unwrap_err();
    let text = error.to_string();
    assert_eq!(text, format!("org/model at {COMMIT} has no file config.json"));
}

#[test]
fn a_rate_limit_is_waited_for() {
    let repo = Repo::default();
    let hub = Server::start(move |request, earlier| match earlier {
        0 => Reply::new(429).header("Retry-After", "1"),
        _ => repo.answer(request),
    });
    let cache = tempfile::tempdir().unwrap();
    let mut log = Log::default();
    let started = std::time::Instant::now();
    pull(&request("main", named(&["config.json"])), &settings(cache.path(), &hub.url), &mut log)
        .unwrap();
    assert_eq!(log.pauses, [Duration::from_secs(1)]);
    assert!(started.elapsed() >= Duration::from_secs(1));
}

#[test]
fn a_rate_limit_that_is_too_long_or_lasts_is_reported() {
    for (after, requests, cure) in
        [("3600", 1, "try again in 3600 s"), ("0", 3, "try again in 0 s")]
    {
        let hub = Server::start(move |_, _| Reply::new(429).header("Retry-After", after));
        let cache = tempfile::tempdir().unwrap();
        let error = pull_model(&settings(cache.path(), &hub.url)).unwrap_err();
        assert!(matches!(error, Error::RateLimited { .. }));
        assert!(error.to_string().contains(cure), "{error}");
        assert_eq!(hub.requests().len(), requests);
    }
}
