//! Networks and servers that fail half-way, and contents that are wrong.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use monolith_hub::{Error, Files, Limits, Missing, pull};

use crate::repo::{Log, Repo, etag, pull_model, pull_named, request, settings, tree};
use crate::server::{Reply, Request, Server};

const WEIGHTS: &str = "model.safetensors";

/// A hub in order but for the contents of the weights, which `fault` may replace. It is told
/// how many times they were asked for before.
fn hub_with(
    fault: impl Fn(&Request, &[u8], usize) -> Option<Reply> + Send + Sync + 'static,
) -> Server {
    let repo = Repo::default();
    let asked = AtomicUsize::new(0);
    Server::start(move |request, _| match repo.file(request) {
        Some((WEIGHTS, bytes)) if request.method == "GET" => {
            let earlier = asked.fetch_add(1, Ordering::SeqCst);
            fault(request, bytes, earlier).unwrap_or_else(|| repo.answer(request))
        }
        _ => repo.answer(request),
    })
}

fn blob_names(cache: &std::path::Path) -> Vec<String> {
    tree(&cache.join("models--org--model/blobs"))
}

#[test]
fn a_broken_download_goes_on_where_it_broke() {
    let hub = hub_with(|request, bytes, earlier| {
        (earlier == 0).then(|| Reply::ranged(bytes, request).cut_at(100_000))
    });
    let cache = tempfile::tempdir().unwrap();
    let mut log = Log::default();
    let settings = settings(cache.path(), &hub.url);
    let snapshot = pull(&request("main", Files::Model), &settings, &mut log).unwrap();
    assert_eq!(std::fs::read(snapshot.dir.join(WEIGHTS)).unwrap(), Repo::default().0[WEIGHTS]);
    assert_eq!(log.pauses.len(), 1);
    let starts: Vec<_> = hub
        .requests()
        .iter()
        .filter(|r| r.method == "GET" && r.path.ends_with(WEIGHTS))
        .map(Request::range_start)
        .collect();
    assert_eq!(starts, [None, Some(100_000)]);
}

#[test]
fn a_server_that_cannot_resume_is_asked_for_all_of_it() {
    for ignores_range in [true, false] {
        let hub = hub_with(move |request, bytes, earlier| match earlier {
            0 => Some(Reply::ok(bytes).cut_at(50_000)),
            _ if ignores_range => Some(Reply::ok(bytes)),
            1 => Some(Reply::new(416)),
            _ => {
                assert_eq!(request.range_start(), None);
                None
            }
        });
        let cache = tempfile::tempdir().unwrap();
        let snapshot = pull_model(&settings(cache.path(), &hub.url)).unwrap();
        assert_eq!(std::fs::read(snapshot.dir.join(WEIGHTS)).unwrap(), Repo::default().0[WEIGHTS]);
    }
}

#[test]
fn a_later_pull_resumes_what_an_earlier_one_left() {
    let hub = hub_with(|request, bytes, earlier| {
        (earlier < 3).then(|| Reply::ranged(bytes, request).cut_at(10_000))
    });
    let cache = tempfile::tempdir().unwrap();
    let settings = settings(cache.path(), &hub.url);
    let error = pull_model(&settings).unwrap_err();
    assert!(matches!(error, Error::Network { .. }), "{error}");
    assert!(error.to_string().contains("at 30000 of 300000 bytes"), "{error}");
    // Not there under its name, nor does the branch point to the half.
    assert!(!cache.path().join("models--org--model/refs/main").exists());
    assert_eq!(blob_names(cache.path()).iter().filter(|n| n.ends_with(".incomplete")).count(), 1);

    pull_model(&settings).unwrap();
    let last = hub.requests().into_iter().rfind(|r| r.path.ends_with(WEIGHTS)).unwrap();
    assert_eq!(last.range_start(), Some(30_000));
    assert!(blob_names(cache.path()).iter().all(|name| !name.contains("incomplete")));
}

#[test]
fn a_damaged_rest_of_an_earlier_download_is_done_over() {
    let repo = Repo::default();
    let checksum = etag(WEIGHTS, &repo.0[WEIGHTS]).replace('"', "");
    for left in [vec![0_u8; 1000], vec![0; 300_000], vec![0; 300_001]] {
        let hub = hub_with(|_, _, _| None);
        let cache = tempfile::tempdir().unwrap();
        let blobs = cache.path().join("models--org--model/blobs");
        std::fs::create_dir_all(&blobs).unwrap();
        std::fs::write(blobs.join(format!("{checksum}.incomplete")), left).unwrap();
        let snapshot = pull_model(&settings(cache.path(), &hub.url)).unwrap();
        assert_eq!(std::fs::read(snapshot.dir.join(WEIGHTS)).unwrap(), repo.0[WEIGHTS]);
    }
}

#[test]
fn wrong_bytes_are_named_and_deleted() {
    let hub = hub_with(|_, bytes, _| {
        let mut wrong = bytes.to_vec();
        wrong[123_456] ^= 1;
        Some(Reply::ok(wrong))
    });
    let cache = tempfile::tempdir().unwrap();
    let error = pull_model(&settings(cache.path(), &hub.url)).unwrap_err();
    let text = error.to_string();
    let Error::Checksum { file, expected, got } = error else { panic!("{text}") };
    assert_eq!((&*file, expected.len(), got.len()), (WEIGHTS, 64, 64));
    assert_ne!(expected, got);
    assert!(text.contains(&expected) && text.contains(&got));
    assert_eq!(blob_names(cache.path()).len(), 2, "the config and the tokenizer");
    assert!(!cache.path().join("models--org--model/refs/main").exists());
}

#[test]
fn wrong_bytes_of_a_small_file_are_found_by_gits_id() {
    let repo = Repo::default();
    let hub = Server::start(move |request, _| match repo.file(request) {
        Some((name @ "config.json", bytes)) => {
            let body: &[u8] = if request.method == "GET" { b"[]" } else { bytes };
            Reply::ok(body).header("ETag", etag(name, bytes))
        }
        _ => repo.answer(request),
    });
    let cache = tempfile::tempdir().unwrap();
    let error = pull_named(&settings(cache.path(), &hub.url), &["config.json"]).unwrap_err();
    assert!(matches!(error, Error::Checksum { expected, .. } if expected.len() == 40));
    assert_eq!(blob_names(cache.path()), [""; 0]);
}

#[test]
fn more_bytes_than_announced_are_not_read_to_the_end() {
    let hub = hub_with(|_, bytes, _| Some(Reply::ok([bytes, bytes].concat())));
    let cache = tempfile::tempdir().unwrap();
    let error = pull_model(&settings(cache.path(), &hub.url)).unwrap_err();
    assert!(matches!(error, Error::TooLong { size_bytes: 300_000, .. }), "{error}");
    assert_eq!(blob_names(cache.path()).len(), 2);
}

#[test]
fn files_without_a_checksum_or_size_are_not_downloaded() {
    let sum = |etag: &str| Missing::Checksum((!etag.is_empty()).then(|| etag.to_owned()));
    for (reply, expected, words) in [
        (Reply::ok("x"), sum(""), "it sends no ETag"),
        (Reply::ok("x").header("ETag", "\"abc\""), sum("\"abc\""), "is neither a SHA-256"),
        (Reply::ok("x").header("ETag", "\"65a1-1f4\""), sum("\"65a1-1f4\""), "65a1-1f4"),
        (Reply::ok("x").header("ETag", "\"../../x\""), sum("\"../../x\""), "../../x"),
        (
            Reply::ok("x").header("ETag", etag("x", b"x")).header("Content-Encoding", "gzip"),
            Missing::Size,
            "does not say its size",
        ),
    ] {
        let repo = Repo::default();
        let hub = Server::start(move |request, _| match repo.file(request) {
            Some(_) => reply.clone(),
            None => repo.answer(request),
        });
        let cache = tempfile::tempdir().unwrap();
        let error = pull_named(&settings(cache.path(), &hub.url), &["config.json"]).unwrap_err();
        let text = error.to_string();
        let Error::Unverifiable { missing, from, redirect, .. } = error else { panic!("{text}") };
        assert_eq!((missing, redirect), (expected, None));
        assert!(from.starts_with(&hub.url) && text.contains(&from), "{text}");
        assert!(text.contains(words) && text.contains("without HF_ENDPOINT"), "{text}");
        assert_eq!(hub.count("GET", "config.json"), 0);
    }
}

#[test]
fn a_hub_that_gives_a_byte_now_and_then_is_left() {
    let limits = Limits {
        silence: Duration::from_secs(10),
        window: Duration::from_millis(60),
        window_bytes_min: 1000,
    };
    let pause = Duration::from_millis(10);
    // The contents of a file: the partial file is kept, and each try resumes it.
    let hub = hub_with(move |request, bytes, _| Some(Reply::ranged(bytes, request).pause(pause)));
    let cache = tempfile::tempdir().unwrap();
    let mut settings = settings(cache.path(), &hub.url);
    settings.limits = limits;
    let error = pull_model(&settings).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::TooSlow { .. }), "{text}");
    assert!(text.contains("of 300000 bytes; the partial file is kept"), "{text}");
    assert!(text.contains("the same command resumes it"), "{text}");
    let starts: Vec<_> = hub
        .requests()
        .iter()
        .filter(|r| r.method == "GET" && r.path.ends_with(WEIGHTS))
        .map(|request| request.range_start().unwrap_or(0))
        .collect();
    assert!(starts.len() == 3 && starts.is_sorted() && starts[2] > starts[0], "{starts:?}");

    // The list of files.
    let repo = Repo::default();
    let hub = Server::start(move |request, _| repo.answer(request).pause(pause));
    settings.endpoint = hub.url.parse().unwrap();
    let error = pull_model(&settings).unwrap_err();
    assert!(error.to_string().contains("too slow: "), "{error}");
    assert_eq!(hub.requests().len(), 3);
}

#[test]
fn a_hub_that_falls_silent_is_left() {
    let hub = hub_with(|request, bytes, _| {
        Some(Reply::ranged(bytes, request).pause(Duration::from_secs(3600)))
    });
    let cache = tempfile::tempdir().unwrap();
    let mut settings = settings(cache.path(), &hub.url);
    settings.limits.silence = Duration::from_millis(100);
    let error = pull_model(&settings).unwrap_err();
    assert!(matches!(error, Error::Network { .. }), "{error}");
    assert!(error.to_string().contains("of 300000 bytes"), "{error}");
}

#[test]
fn a_failing_server_is_tried_again_but_not_for_ever() {
    let repo = Repo::default();
    let hub = Server::start(move |request, earlier| match earlier {
        0 => Reply::new(500),
        2 => Reply::new(503),
        4 => Reply::new(504),
        _ => repo.answer(request),
    });
    let cache = tempfile::tempdir().unwrap();
    pull_named(&settings(cache.path(), &hub.url), &["config.json"]).unwrap();
    assert_eq!(hub.requests().len(), 6);

    let down = Server::start(|_, _| Reply::new(502));
    let error = pull_model(&settings(cache.path(), &down.url)).unwrap_err();
    assert!(matches!(error, Error::Server { status: 502, .. }), "{error}");
    assert_eq!(down.requests().len(), 3);
}

#[test]
fn a_refusal_by_a_cdn_gets_a_new_address_and_shows_no_signature() {
    let repo = Repo::default();
    let cdn = Server::start(|_, _| Reply::new(403));
    let location = format!("{}/blob?Signature=very-secret", cdn.url);
    let hub = Server::start(move |request, _| match repo.file(request) {
        Some((name, bytes)) => Reply::new(302)
            .header("Location", &location)
            .header("X-Linked-ETag", etag(name, bytes))
            .header("X-Linked-Size", bytes.len().to_string()),
        None => repo.answer(request),
    });
    let cache = tempfile::tempdir().unwrap();
    let error = pull_named(&settings(cache.path(), &hub.url), &["config.json"]).unwrap_err();
    assert!(matches!(error, Error::Server { status: 403, .. }), "{error}");
    assert!(!format!("{error} {error:?}").contains("very-secret"));
    assert_eq!(hub.count("GET", "config.json"), 3, "each try starts at the hub");
}

#[test]
fn a_hub_that_is_not_there_is_a_network_error_with_a_hint() {
    let cache = tempfile::tempdir().unwrap();
    // Bound and dropped: nothing listens there any more.
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut log = Log::default();
    let settings = settings(cache.path(), &format!("http://{address}"));
    let error = pull(&request("main", Files::Model), &settings, &mut log).unwrap_err();
    assert!(matches!(error, Error::Network { .. }), "{error}");
    assert!(error.to_string().contains("HF_HUB_OFFLINE=1"), "{error}");
    assert_eq!(log.pauses.len(), 2);
}
