//! Queries the hub: the files of a revision, and each file's size and checksum.

use std::io::Read;

use monolith_http::{percent_encoded, shown};
use serde::Deserialize;
use ureq::http::HeaderMap;
use ureq::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, ETAG};

use crate::checksum::Checksum;
use crate::client::{Client, Failure, Head, Subject, bad_reply, broken, header};
use crate::limits::Pace;
use crate::name::is_commit;
use crate::{Error, Missing, Progress, RepoId, Revision};

/// Longest listing that is read; the hub's longest are a few megabytes.
const LISTING_BYTES_MAX: usize = 64 << 20;
/// Bytes that are read at once.
const CHUNK_BYTES: usize = 64 << 10;

/// A revision's commit and the names of its files, as the hub's API lists them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// The commit, in 40 hexadecimal digits.
    pub commit: String,
    /// Names of the files, which are not checked yet.
    pub files: Vec<String>,
}

impl Listing {
    /// Reads the API's answer.
    ///
    /// # Errors
    /// Describes the fault. The text never quotes the answer.
    pub fn from_json(body: &[u8]) -> Result<Self, String> {
        // The message of a JSON error may quote the answer, so only its place is reported.
        let info: ModelInfo = serde_json::from_slice(body).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            format!("not a model's description (line {line}, column {column})")
        })?;
        if !is_commit(&info.sha) {
            return Err("its `sha` is no commit".to_owned());
        }
        let files = info.siblings.into_iter().map(|sibling| sibling.rfilename).collect();
        Ok(Self { commit: info.sha, files })
    }
}

/// A file to download.
pub(crate) struct RemoteFile {
    pub name: String,
    pub url: String,
    pub checksum: Checksum,
    pub size_bytes: u64,
}

#[derive(Deserialize)]
struct ModelInfo {
    sha: String,
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
struct Sibling {
    rfilename: String,
}

/// Asks which files a revision has.
pub(crate) fn listing(
    client: &Client,
    repo: &RepoId,
    revision: &Revision,
    progress: &mut dyn Progress,
) -> Result<Listing, Error> {
    let encoded = percent_encoded(revision.as_str(), false);
    let url = format!("{}/api/models/{repo}/revision/{encoded}", client.endpoint());
    let subject = Subject { repo, revision: revision.as_str(), file: None };
    client.retrying(progress, || {
        let response = client.get(&url, 0, subject)?;
        let mut reader = response.into_body().into_with_config().limit(u64::MAX).reader();
        let (mut body, mut pace) = (Vec::new(), Pace::new(client.limits));
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            let count = reader.read(&mut chunk).map_err(|error| broken(&url, &error))?;
            if count == 0 {
                break;
            }
            body.extend_from_slice(&chunk[..count]);
            if body.len() > LISTING_BYTES_MAX {
                return Err(bad_reply(
                    &url,
                    "a list of files that is longer than any repository's",
                ));
            }
            pace.arrived(count).map_err(|reason| broken(&url, &reason))?;
        }
        Listing::from_json(&body).map_err(|reason| bad_reply(&url, reason))
    })
}

/// Asks for a file's size and checksum.
pub(crate) fn metadata(
    client: &Client,
    repo: &RepoId,
    commit: &str,
    file: &str,
    progress: &mut dyn Progress,
) -> Result<RemoteFile, Error> {
    let encoded = percent_encoded(file, true);
    let url = format!("{}/{repo}/resolve/{commit}/{encoded}", client.endpoint());
    let subject = Subject { repo, revision: commit, file: Some(file) };
    client.retrying(progress, || {
        let complete = |headers: &HeaderMap| {
            checksum(headers).is_ok() && header(headers, "x-linked-size").is_some()
        };
        let head = client.head(&url, subject, complete)?;
        let unverifiable = |missing| {
            let (file, from) = (file.to_owned(), shown(&url));
            Error::Unverifiable { file, missing, from, redirect: head.redirect.clone() }
        };
        let checksum = checksum(&head.headers)
            .map_err(|etag| unverifiable(Missing::Checksum(etag.map(str::to_owned))))?;
        let size_bytes = size_bytes(&head).ok_or_else(|| unverifiable(Missing::Size))?;
        Ok::<_, Failure>(RemoteFile {
            name: file.to_owned(),
            url: url.clone(),
            checksum,
            size_bytes,
        })
    })
}

/// Returns the checksum (of the linked file, if a large file is stored elsewhere), or the `ETag`
/// that is not one.
fn checksum(headers: &HeaderMap) -> Result<Checksum, Option<&str>> {
    let etag = header(headers, "x-linked-etag").or_else(|| header(headers, ETAG.as_str()));
    etag.and_then(Checksum::from_etag).ok_or(etag)
}

/// Returns the file's size, not the length of a redirect's text or of a compressed file.
fn size_bytes(head: &Head) -> Option<u64> {
    let coding = header(&head.headers, CONTENT_ENCODING.as_str()).unwrap_or("identity");
    let is_size = head.is_contents && coding.eq_ignore_ascii_case("identity");
    header(&head.headers, "x-linked-size")
        .or_else(|| header(&head.headers, CONTENT_LENGTH.as_str()).filter(|_| is_size))?
        .trim()
        .parse()
        .ok()
}
