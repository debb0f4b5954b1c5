//! What the hub has: the files of a revision, and each file's size and checksum.

use std::io::Read;

use serde::Deserialize;
use ureq::http::HeaderMap;
use ureq::http::header::{CONTENT_LENGTH, ETAG};

use crate::checksum::Checksum;
use crate::client::{Client, Subject, bad_reply, broken, header};
use crate::endpoint::percent_encoded;
use crate::name::is_commit;
use crate::retry::Failure;
use crate::{Error, Progress, RepoId, Revision};

/// Longest listing that is read; the hub's longest are a few megabytes.
const LISTING_BYTES_MAX: u64 = 64 << 20;

/// A revision's commit and the names of its files.
pub(crate) struct Listing {
    pub commit: String,
    pub files: Vec<String>,
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
        let mut body = Vec::new();
        let reader = response.into_body().into_with_config().limit(LISTING_BYTES_MAX).reader();
        reader.take(LISTING_BYTES_MAX).read_to_end(&mut body).map_err(|e| broken(&url, &e))?;
        // The message of a JSON error may quote the answer, so only its place is told.
        let info: ModelInfo = serde_json::from_slice(&body).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            bad_reply(&url, format!("not a model's description (line {line}, column {column})"))
        })?;
        if !is_commit(&info.sha) {
            return Err(bad_reply(&url, "its `sha` is no commit"));
        }
        let files = info.siblings.into_iter().map(|sibling| sibling.rfilename).collect();
        Ok(Listing { commit: info.sha, files })
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
        let (is_contents, headers) = client.head(&url, subject)?;
        let unverifiable = |missing| Error::Unverifiable { file: file.to_owned(), missing };
        let checksum = checksum(&headers).ok_or_else(|| unverifiable("checksum"))?;
        let size_bytes = size_bytes(&headers, is_contents).ok_or_else(|| unverifiable("size"))?;
        Ok::<_, Failure>(RemoteFile {
            name: file.to_owned(),
            url: url.clone(),
            checksum,
            size_bytes,
        })
    })
}

/// Large files lie elsewhere: what counts for them is the checksum of what is linked to.
fn checksum(headers: &HeaderMap) -> Option<Checksum> {
    let etag = header(headers, "x-linked-etag").or_else(|| header(headers, ETAG.as_str()))?;
    Checksum::from_etag(etag)
}

/// A redirect's own length is that of its text, not of the file.
fn size_bytes(headers: &HeaderMap, is_contents: bool) -> Option<u64> {
    header(headers, "x-linked-size")
        .or_else(|| header(headers, CONTENT_LENGTH.as_str()).filter(|_| is_contents))?
        .trim()
        .parse()
        .ok()
}
