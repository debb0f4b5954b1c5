//! The certificate authorities that servers' certificates are checked against.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use rustls_native_certs::{CertificateResult, load_certs_from_paths, load_native_certs};
use ureq::tls::{Certificate, RootCerts};

use crate::Error;

/// The trusted certificate authorities. If neither field is set, those of the system; if the system
/// has none, Mozilla's, which are built in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Authorities {
    /// A PEM file, from `SSL_CERT_FILE`.
    pub file: Option<PathBuf>,
    /// Folders of PEM files, from `SSL_CERT_DIR`, separated as in `PATH`.
    pub dirs: Option<OsString>,
}

impl Authorities {
    /// Reads the certificates.
    pub(crate) fn load(&self) -> Result<RootCerts, Error> {
        if self == &Self::default() {
            // An unreadable system file does not affect the others.
            let found = load_native_certs();
            let none = found.certs.is_empty();
            return Ok(if none { RootCerts::WebPki } else { certificates(&found).into() });
        }
        let mut all = Vec::new();
        if let Some(file) = &self.file {
            let found = load_certs_from_paths(Some(file), None);
            all.extend(at_least_one("SSL_CERT_FILE", file, &found)?);
        }
        let dirs = self.dirs.iter().flat_map(|dirs| std::env::split_paths(dirs));
        for dir in dirs.filter(|dir| !dir.as_os_str().is_empty()) {
            let found = load_certs_from_paths(None, Some(&dir));
            all.extend(at_least_one("SSL_CERT_DIR", &dir, &found)?);
        }
        Ok(all.into())
    }
}

/// Reads the certificates from a place that a variable names.
fn at_least_one(
    variable: &'static str,
    path: &Path,
    found: &CertificateResult,
) -> Result<Vec<Certificate<'static>>, Error> {
    if found.certs.is_empty() {
        let reason = match found.errors.first() {
            Some(error) => error.to_string(),
            None => "it has no certificate in PEM form".to_owned(),
        };
        return Err(Error::Authorities { variable, path: path.to_owned(), reason });
    }
    Ok(certificates(found))
}

fn certificates(found: &CertificateResult) -> Vec<Certificate<'static>> {
    found.certs.iter().map(|der| Certificate::from_der(der).to_owned()).collect()
}
