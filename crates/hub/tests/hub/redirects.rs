//! Mirrors that redirect to another server.

use monolith_hub::{Error, TokenUse};

use crate::repo::{Repo, TOKEN, etag, pull_model, pull_named, settings};
use crate::server::{Reply, Request, Server};

fn bearer(request: &Request) -> Option<&str> {
    request.headers.get("authorization").map(String::as_str)
}

/// A mirror that sends every request, or those `of` is true for, to `to`.
fn mirror(status: u16, to: &str, of: fn(&Request) -> bool) -> Server {
    let (to, repo) = (to.to_owned(), Repo::default());
    Server::start(move |request, _| {
        if of(request) {
            return Reply::new(status).header("Location", format!("{to}{}", request.path));
        }
        repo.answer(request)
    })
}

#[test]
fn a_mirror_may_redirect_to_another_server() {
    for status in [301, 302, 307, 308] {
        for of in [|_: &Request| true, |request: &Request| request.path.contains("/resolve/")] {
            let repo = Repo::default();
            let hub = Server::start(move |request, _| repo.answer(request));
            let mirror = mirror(status, &hub.url, of);
            let cache = tempfile::tempdir().unwrap();
            let snapshot = pull_model(&settings(cache.path(), &mirror.url)).unwrap();
            assert_eq!(snapshot.downloaded, 3);
            for file in &snapshot.files {
                let bytes = std::fs::read(snapshot.dir.join(file)).unwrap();
                assert_eq!(bytes, Repo::default().0[&**file], "{status}");
            }
            // The token is the mirror's alone.
            let expected = format!("Bearer {TOKEN}");
            assert!(mirror.requests().iter().all(|request| bearer(request) == Some(&expected)));
            assert!(hub.requests().iter().all(|request| bearer(request).is_none()));
        }
    }
}

#[test]
fn a_hub_behind_a_mirror_redirects_to_its_cdn() {
    let repo = Repo::default();
    let weights = repo.0["model.safetensors"].clone();
    let cdn = Server::start(move |request, _| Reply::ranged(&weights, request));
    let location = format!("{}/blob?signature=abc", cdn.url);
    let hub = Server::start(move |request, _| match repo.file(request) {
        Some((name, bytes)) if name.ends_with(".safetensors") => Reply::new(302)
            .header("Location", &location)
            .header("X-Linked-ETag", etag(name, bytes))
            .header("X-Linked-Size", bytes.len().to_string()),
        _ => repo.answer(request),
    });
    let mirror = mirror(308, &hub.url, |_| true);
    let cache = tempfile::tempdir().unwrap();
    pull_model(&settings(cache.path(), &mirror.url)).unwrap();
    let methods: Vec<String> = cdn.requests().into_iter().map(|request| request.method).collect();
    assert_eq!(methods, ["GET"], "asked for the contents, not for what is known of them");
}

#[test]
fn etags_of_compressing_mirrors_are_understood() {
    for (before, after) in [("W/\"", "\""), ("\"", "-gzip\""), ("W/\"", "--gzip\"")] {
        let repo = Repo::default();
        let mirror = Server::start(move |request, _| match repo.file(request) {
            Some((name, bytes)) => {
                let sum = etag(name, bytes);
                let sum = sum.trim_matches('"');
                Reply::ranged(bytes, request).header("ETag", format!("{before}{sum}{after}"))
            }
            None => repo.answer(request),
        });
        let cache = tempfile::tempdir().unwrap();
        assert_eq!(pull_model(&settings(cache.path(), &mirror.url)).unwrap().downloaded, 3);
    }
}

#[test]
fn what_stays_refused_names_the_servers() {
    // The other server has no checksum; or it does not answer HEAD; or it is no server.
    let plain = Server::start(|_, _| Reply::ok("x"));
    let signed = Server::start(|_, _| Reply::new(403));
    for (target, tries) in [(&plain, 1), (&signed, 1)] {
        let mirror = mirror(302, &target.url, |request| request.path.contains("/resolve/"));
        let cache = tempfile::tempdir().unwrap();
        let error = pull_named(&settings(cache.path(), &mirror.url), &["config.json"]).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, Error::Unverifiable { .. }), "{text}");
        assert!(text.contains(&mirror.url), "{text}");
        assert!(text.contains(&format!("redirects to {}", target.url)), "{text}");
        assert_eq!(target.requests().len(), tries, "not worth a second try");
    }
    let mirror = Server::start(|_, _| Reply::new(308).header("Location", "ftp://other/x"));
    let cache = tempfile::tempdir().unwrap();
    let error = pull_model(&settings(cache.path(), &mirror.url)).unwrap_err();
    assert!(error.to_string().contains("a redirect to \"ftp://other/x\""), "{error}");
}

#[test]
fn a_private_repository_behind_a_mirror_says_who_gets_no_token() {
    for (status, path) in [(401, "/api/"), (403, "/resolve/")] {
        let repo = Repo::default();
        let hub = Server::start(move |request, _| {
            if request.path.contains(path) {
                return Reply::new(status).header("X-Error-Code", "GatedRepo");
            }
            repo.answer(request)
        });
        let mirror = mirror(308, &hub.url, |_| true);
        let cache = tempfile::tempdir().unwrap();
        let error = pull_model(&settings(cache.path(), &mirror.url)).unwrap_err();
        let text = error.to_string();
        let Error::Denied { token: TokenUse::Redirected(to), .. } = error else { panic!("{text}") };
        assert_eq!(to, hub.url);
        assert!(text.contains(&format!("set HF_ENDPOINT={}", hub.url)), "{text}");
    }
}

#[test]
fn a_repository_that_the_other_server_lacks_is_not_found() {
    let hub = Server::start(|_, _| Reply::new(404).header("X-Error-Code", "RepoNotFound"));
    let mirror = mirror(308, &hub.url, |_| true);
    let cache = tempfile::tempdir().unwrap();
    let error = pull_model(&settings(cache.path(), &mirror.url)).unwrap_err();
    assert!(matches!(error, Error::RepoNotFound { .. }), "{error}");
    assert_eq!(hub.requests().len(), 1, "not worth a second try");
}
