//! The hub's answers, and the variables that choose it.

use super::{Parser, nothing};
use crate::mutate::mutated;
use anyhow::Result;
use monolith_hub::{
    Endpoint, Listing, RepoId, Revision, Settings, checksum_of_etag, redirect_target,
};
use std::collections::HashMap;

pub const PARSERS: &[Parser] = &[
    Parser {
        name: "hub-listing",
        about: "the hub's list of a repository's files",
        weight: 120,
        corpus: listings,
        mutate: mutated,
        prepare: nothing,
        run: |bytes, _| Listing::from_json(bytes).is_ok(),
    },
    Parser {
        name: "hub-headers",
        about: "ETag, Location and names, one a line",
        weight: 300,
        corpus: headers,
        mutate: mutated,
        prepare: nothing,
        run: |bytes, _| {
            let text = String::from_utf8_lossy(bytes);
            let mut lines = text.lines().chain(std::iter::repeat(""));
            let mut line = || lines.next().unwrap_or_default();
            let checksum = checksum_of_etag(line());
            let (url, location) = (line(), line());
            let target = redirect_target(url, location);
            let endpoint = line().parse::<Endpoint>();
            let named = line().parse::<RepoId>().is_ok() & line().parse::<Revision>().is_ok();
            checksum.is_some() && target.is_some() && endpoint.is_ok() && named
        },
    },
    Parser {
        name: "hub-variables",
        about: "environment variables, one NAME=VALUE a line",
        weight: 120,
        corpus: variables,
        mutate: mutated,
        prepare: nothing,
        run: |bytes, _| {
            let text = String::from_utf8_lossy(bytes);
            let table: HashMap<&str, &str> =
                text.lines().filter_map(|line| line.split_once('=')).collect();
            Settings::from_env(|name| table.get(name).map(|value| (*value).to_owned())).is_ok()
        },
    },
];

fn listings() -> Result<Vec<Vec<u8>>> {
    let commit = "0123456789abcdef0123456789abcdef01234567";
    let full = format!(
        "{{\"sha\":\"{commit}\",\"private\":false,\"tags\":[\"x\"],\"siblings\":[\
         {{\"rfilename\":\"config.json\"}},{{\"rfilename\":\"sub/x.safetensors\",\"size\":5}}]}}"
    );
    let short = format!(r#"{{"sha":"{commit}","siblings":[]}}"#);
    Ok(vec![full.into_bytes(), short.into_bytes()])
}

fn headers() -> Result<Vec<Vec<u8>>> {
    let git = "ce013625030ba8dba906f756967f9e9ca394464a";
    let sum = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";
    let first = format!(
        "W/\"{git}\"\nhttps://hub.example:1/a/b?q=/x\n/api/y\nhttps://hub.example/a\norg/name\n\
         main\n"
    );
    let second = format!(
        "\"{sum}-gzip\"\nhttps://me:pw@hub.example\n//cdn.example/y?z\nhttp://[::1]:8080\n\
         gpt2\nrefs/pr/1\n"
    );
    Ok(vec![first.into_bytes(), second.into_bytes()])
}

fn variables() -> Result<Vec<Vec<u8>>> {
    let first = "HOME=/home/me\nHF_HOME=~/${X}/$Y\nX=a\nHF_TOKEN=hf_x\nHF_ENDPOINT=https://h\n\
                 HF_HUB_OFFLINE=1\nSSL_CERT_FILE=/x.pem\n";
    let second = "HF_HUB_CACHE=$A/$B\nA=1\nHUGGING_FACE_HUB_TOKEN=t\nSSL_CERT_DIR=/a:/b\n";
    Ok(vec![first.into(), second.into()])
}
