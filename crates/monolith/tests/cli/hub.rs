//! `pull` from a hub on the loopback interface, and what runs afterwards.

#[allow(dead_code, reason = "shared with the hub's own tests, which use all of it")]
#[path = "../../../hub/tests/hub/server.rs"]
mod server;

use crate::support::{Outcome, Place, outcome, tiny};
use server::{Reply, Request, Server};
use sha2::{Digest, Sha256};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
const FILES: [&str; 5] = [
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
];

/// A hub that has the shipped model as `org/name`.
fn serve(request: &Request) -> Reply {
    if request.path.starts_with("/api/models/org/name/revision/") {
        let files: Vec<_> =
            FILES.iter().map(|name| serde_json::json!({ "rfilename": name })).collect();
        return Reply::ok(serde_json::json!({ "sha": COMMIT, "siblings": files }).to_string());
    }
    let prefix = format!("/org/name/resolve/{COMMIT}/");
    let Some(name) = request.path.strip_prefix(&prefix) else { return Reply::new(404) };
    let bytes = std::fs::read(tiny().join(name)).unwrap();
    let sum: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    Reply::ranged(&bytes, request).header("ETag", format!("\"{sum}\""))
}

fn pull(place: &Place, url: &str, args: &[&str]) -> Outcome {
    let mut command = place.command(&[&["pull"], args].concat());
    outcome(command.env("HF_ENDPOINT", url))
}

#[test]
fn what_was_pulled_runs_by_its_name_without_the_hub() {
    let (place, hub) = (Place::new(), Server::start(|request, _| serve(request)));
    let seen = pull(&place, &hub.url, &["org/name"]);
    assert_eq!(seen.code, 0, "{}", seen.stderr);
    assert!(seen.stderr.contains("5 files, 5 downloaded"), "{}", seen.stderr);
    let dir = seen.stdout.strip_suffix('\n').unwrap();
    assert!(dir.ends_with(COMMIT) && std::path::Path::new(dir).is_dir(), "{dir}");

    let again = pull(&place, &hub.url, &["org/name", "--quiet"]);
    assert_eq!((again.stdout, again.stderr), (seen.stdout.clone(), String::new()));
    let requests = hub.requests().len();
    for name in ["org/name", "org/name@main", &format!("org/name@{COMMIT}"), dir] {
        let args = ["run", "-n", "4", "-p", "My fellow", "--json", "--model", name];
        let seen: serde_json::Value = serde_json::from_str(&place.succeeds(&args)).unwrap();
        assert!(seen["text"].as_str().unwrap().contains("Americans"), "{seen}");
        let model = if name == dir { COMMIT } else { "org/name" };
        assert_eq!(seen["model"], model);
    }
    assert_eq!(hub.requests().len(), requests, "run connects to nothing");
}

#[test]
fn a_refusal_is_a_remote_failure() {
    let place = Place::new();
    let hub = Server::start(|_, _| Reply::new(401));
    pull(&place, &hub.url, &["org/name"]).is_failure(6, "access to org/name was denied (HTTP 401)");
    let hub = Server::start(|_, _| Reply::new(404).header("X-Error-Code", "RepoNotFound"));
    pull(&place, &hub.url, &["org/name"]).is_failure(6, "repository org/name was not found");
    place.fails(&["run", "-m", "org/name", "-p", "x"], 4, "`monolith pull org/name`");
}

#[test]
fn a_token_is_never_shown() {
    let (place, hub) = (Place::new(), Server::start(|_, _| Reply::new(403)));
    let mut command = place.command(&["pull", "org/name"]);
    let seen = outcome(command.env("HF_ENDPOINT", &hub.url).env("HF_TOKEN", "hf_secret"));
    seen.is_failure(6, "denied (HTTP 403)");
    assert!(!seen.stderr.contains("hf_secret"));
}

#[test]
fn offline_there_is_only_the_cache() {
    let place = Place::new();
    let mut command = place.command(&["pull", "org/name"]);
    let seen = outcome(command.env("HF_HUB_OFFLINE", "1"));
    seen.is_failure(4, "offline, and config.json of org/name at main is not in");
}

#[test]
fn variables_are_read_as_huggingface_hub_reads_them() {
    let (place, hub) = (Place::new(), Server::start(|request, _| serve(request)));
    let with = |variables: &[(&str, &str)]| {
        let mut command = place.command(&["pull", "org/name", "--quiet"]);
        outcome(command.env("HF_ENDPOINT", &hub.url).envs(variables.iter().copied()))
    };
    let foo = place.path("foo");
    let seen = with(&[("FOO", foo.to_str().unwrap()), ("HF_HOME", "$FOO/hf")]);
    assert_eq!(seen.code, 0, "{}", seen.stderr);
    let expected = foo.join("hf/hub/models--org--name/snapshots").join(COMMIT);
    assert_eq!(seen.stdout, format!("{}\n", expected.display()));

    let requests = hub.requests().len();
    with(&[("TRANSFORMERS_OFFLINE", "1")]).is_failure(4, "offline, and config.json");
    assert_eq!(hub.requests().len(), requests);

    let sent = |variables: &[(&str, &str)]| {
        with(variables);
        hub.requests().last().unwrap().headers.get("authorization").cloned()
    };
    let old = ("HUGGING_FACE_HUB_TOKEN", "hf_old");
    assert_eq!(sent(&[old]).as_deref(), Some("Bearer hf_old"));
    assert_eq!(sent(&[old, ("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")]), None);

    let missing = place.path("no.pem");
    with(&[("SSL_CERT_FILE", missing.to_str().unwrap())]).is_failure(2, "SSL_CERT_FILE: ");
}

#[test]
fn an_endpoint_that_cannot_be_is_wrong_usage() {
    pull(&Place::new(), "nonsense", &["org/name"]).is_failure(2, "hub endpoint \"nonsense\"");
}
