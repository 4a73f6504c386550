//! `sslmode=verify-full`: a certificate that is right is enough, one that is not is an error that says so.

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use ebb::pg::{Database, Target, binaries};
use ebb::{Engine, Keys};
use ebb_testkit::{TempDir, empty_database_on, own_server};

fn openssl(dir: &Path, args: &str) {
    let output = Command::new("openssl").args(args.split(' ')).current_dir(dir).output().expect("openssl is installed");
    assert!(output.status.success(), "openssl {args}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A certificate authority.
pub(crate) fn authority(dir: &Path, name: &str) {
    openssl(
        dir,
        &format!("req -x509 -newkey rsa:2048 -nodes -days 2 -keyout {name}.key -out {name}.crt -subj /CN={name}"),
    );
}

/// A certificate for `localhost`, signed by an authority.
pub(crate) fn certificate(dir: &Path, authority: &str) {
    openssl(dir, "req -newkey rsa:2048 -nodes -keyout server.key -out server.csr -subj /CN=localhost");
    std::fs::write(dir.join("names"), "subjectAltName=DNS:localhost\nbasicConstraints=CA:FALSE\n").unwrap();
    let signed = format!("-CA {authority}.crt -CAkey {authority}.key -CAcreateserial -days 2 -extfile names");
    openssl(dir, &format!("x509 -req -in server.csr {signed} -out server.crt"));
}

#[tokio::test]
async fn a_server_is_who_its_certificate_says() {
    let (dir, server) = (TempDir::new(), own_server());
    authority(dir.path(), "right");
    authority(dir.path(), "wrong");
    certificate(dir.path(), "right");
    for file in ["server.crt", "server.key"] {
        let to = server.dir().join(file);
        std::fs::copy(dir.path().join(file), &to).unwrap();
        std::fs::set_permissions(&to, std::fs::Permissions::from_mode(0o600)).unwrap();
        if let Some(user) = binaries::server_user().unwrap() {
            chown(&to, Some(user.uid), Some(user.gid)).unwrap();
        }
    }
    let at = server.dir().display();
    server.set(&format!("ssl = on\nssl_cert_file = '{at}/server.crt'\nssl_key_file = '{at}/server.key'"));
    server.reload();
    let db = empty_database_on(&server).await;
    let target = |host: &str, authority: &str| {
        let url = format!(
            "postgres://postgres@{host}:{}/{}?sslmode=verify-full&sslrootcert={}/{authority}.crt",
            server.address().port(),
            db.name(),
            dir.path().display()
        );
        Target::parse(&url, None)
    };
    let engine = |host: &str, authority: &str| {
        Engine::new(Database::open(target(host, authority).unwrap(), 2, "ebb/test"), Keys::default())
    };
    let right = engine("localhost", "right");
    // The server takes its new settings a moment after it was told.
    let begun = std::time::Instant::now();
    while let Err(error) = right.migrate().await {
        assert!(begun.elapsed() < crate::harness::SOON, "{error:?}");
    }
    let mut tx = right.database().read().await.unwrap();
    let encrypted: bool = sqlx::query_scalar("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()")
        .fetch_one(&mut *tx)
        .await
        .unwrap();
    assert!(encrypted);
    for (host, authority, says) in
        [("localhost", "wrong", "UnknownIssuer"), ("127.0.0.1", "right", "not valid for name")]
    {
        let error = engine(host, authority).ready().await.unwrap_err();
        let text = format!("{error} {}", error.hint().unwrap_or_default());
        assert!(text.contains(says) && text.contains("sslrootcert"), "{host} {authority}: {text}");
    }
    let error = target("localhost", "missing").unwrap_err();
    assert!(error.is_config() && error.to_string().contains("missing.crt cannot be read"), "{error}");
}

#[tokio::test]
async fn a_server_without_tls_is_told_apart_from_one_that_is_away() {
    let db = ebb_testkit::empty_database().await;
    let target = Target::parse(&format!("{}?sslmode=require", db.url()), None).unwrap();
    let error = Engine::new(Database::open(target, 2, "ebb/test"), Keys::default()).ready().await.unwrap_err();
    assert!(error.to_string().contains("server does not support TLS"), "{error}");
    assert!(error.hint().is_some_and(|hint| hint.contains("ssl = on") && hint.contains("sslmode=prefer")), "{error:?}");
}
