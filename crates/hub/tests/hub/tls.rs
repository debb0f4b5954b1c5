//! Servers with a certificate authority of their own.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use monolith_hub::{Authorities, Error, Files, pull};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::repo::{Log, Repo, pull_model, request, settings};
use crate::server::Server;

/// A certificate authority, and a hub whose certificate it signed for `name`.
fn hub(name: &str) -> (Server, String) {
    let (authority_key, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let mut params = CertificateParams::new([]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&authority_key).unwrap();
    let issuer = Issuer::new(params, authority_key);
    let params = CertificateParams::new([name.to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap();

    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    let (config, repo) = (Arc::new(config), Repo::default());
    let server = Server::start_over(
        "https",
        "localhost",
        move |mut stream| {
            let mut connection = ServerConnection::new(Arc::clone(&config)).unwrap();
            // A client that does not trust it hangs up.
            connection.complete_io(&mut stream).ok()?;
            Some(Box::new(StreamOwned::new(connection, stream)))
        },
        move |request, _| repo.answer(request),
    );
    (server, authority.pem())
}

fn of_file(path: &Path) -> Authorities {
    Authorities { file: Some(path.to_owned()), dirs: None }
}

#[test]
fn an_authority_in_a_file_or_a_folder_is_trusted() {
    let (hub, pem) = hub("localhost");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("ca.pem");
    std::fs::write(&file, pem).unwrap();
    let empty_then_dir = std::env::join_paths([Path::new(""), dir.path()]).unwrap();
    for authorities in [
        of_file(&file),
        Authorities { file: None, dirs: Some(dir.path().into()) },
        Authorities { file: None, dirs: Some(empty_then_dir) },
        Authorities { file: Some(file.clone()), dirs: Some(dir.path().into()) },
    ] {
        let cache = tempfile::tempdir().unwrap();
        let mut settings = settings(cache.path(), &hub.url);
        settings.authorities = authorities;
        assert_eq!(pull_model(&settings).unwrap().downloaded, 3);
    }
}

/// The error of a pull that must not be tried twice.
fn refusal(authorities: Authorities, url: &str) -> Error {
    let cache = tempfile::tempdir().unwrap();
    let mut settings = settings(cache.path(), url);
    settings.authorities = authorities;
    let mut log = Log::default();
    let error = pull(&request("main", Files::Model), &settings, &mut log).unwrap_err();
    assert!(log.pauses.is_empty(), "tried again after {error}");
    error
}

#[test]
fn an_unknown_authority_is_named_once_with_the_cure() {
    let (hub, _) = hub("localhost");
    let (_, other) = self::hub("localhost");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("other.pem");
    std::fs::write(&file, other).unwrap();
    for authorities in [Authorities::default(), of_file(&file)] {
        let error = refusal(authorities, &hub.url);
        let text = error.to_string();
        assert!(matches!(error, Error::Certificate { unknown_authority: true, .. }), "{text}");
        assert!(text.starts_with(&hub.url) && text.contains("set SSL_CERT_FILE"), "{text}");
    }
}

#[test]
fn a_certificate_for_another_name_is_no_matter_of_authorities() {
    let (hub, pem) = hub("hub.example");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("ca.pem");
    std::fs::write(&file, pem).unwrap();
    let error = refusal(of_file(&file), &hub.url);
    let text = error.to_string();
    assert!(matches!(error, Error::Certificate { unknown_authority: false, .. }), "{text}");
    assert!(text.contains("localhost") && !text.contains("SSL_CERT_FILE"), "{text}");
}

#[test]
fn variables_that_name_no_certificates_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("none.pem");
    std::fs::write(&file, "no certificate").unwrap();
    let gone = dir.path().join("gone");
    let folder = |path: &Path| Authorities { file: None, dirs: Some(OsString::from(path)) };
    for (authorities, variable, path) in [
        (of_file(&file), "SSL_CERT_FILE", &file),
        (of_file(&gone), "SSL_CERT_FILE", &gone),
        (folder(&gone), "SSL_CERT_DIR", &gone),
        (folder(dir.path()), "SSL_CERT_DIR", &dir.path().to_owned()),
    ] {
        let text = refusal(authorities, "https://localhost:1").to_string();
        assert!(text.starts_with(&format!("{variable}: {}: ", path.display())), "{text}");
    }
}
