//! Objects: in a local directory, and in a server that speaks S3.

use std::time::Duration;

use ebb_testkit::{Store, TempDir, eventually};

use super::{Registry, name};
use crate::harness::{Ebb, SOON};

const OLD: Duration = Duration::from_secs(2 * 3600);

fn policy(place: &str, more: &str) -> String {
    format!("[[resources]]\nname = \"s\"\ndriver = \"objects\"\n{place}\npattern = \"t{{snowflake}}\"\n{more}\n")
}

/// What is in the store, in order, without the marker.
async fn left(objects: &Objects) -> String {
    let mut names = match objects {
        Objects::Directory(dir) => std::fs::read_dir(dir.path().join("scratch"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect::<Vec<_>>(),
        Objects::Bucket(bucket) => {
            let (_, listing) = Store::s3().request("GET", &format!("/{bucket}?list-type=2"), "").await;
            let keys = listing.split("<Key>").skip(1).filter_map(|rest| rest.split("</Key>").next());
            keys.filter_map(|key| key.strip_prefix("scratch/")).map(str::to_owned).collect()
        }
    };
    names.retain(|name| name != ".ebb-owner");
    names.sort();
    names.join(",")
}

enum Objects {
    Directory(TempDir),
    Bucket(String),
}

impl Objects {
    async fn put(&self, name: &str) {
        match self {
            Objects::Directory(dir) => std::fs::write(dir.path().join("scratch").join(name), "x").unwrap(),
            Objects::Bucket(bucket) => {
                let (status, body) = Store::s3().request("PUT", &format!("/{bucket}/scratch/{name}"), "x").await;
                assert_eq!(status, 200, "{body}");
            }
        }
    }

    async fn both() -> Vec<(Objects, String)> {
        let dir = TempDir::new();
        std::fs::create_dir(dir.path().join("scratch")).unwrap();
        let local = format!("url = \"file://{}/scratch\"", dir.path().display());
        let bucket = format!("b{}", uuid::Uuid::new_v4().simple());
        let (status, body) = Store::s3().request("PUT", &format!("/{bucket}"), "").await;
        assert_eq!(status, 200, "{body}");
        let secret = dir.path().join("secret");
        std::fs::write(&secret, "hidden").unwrap();
        let remote = format!(
            "url = \"s3://{bucket}/scratch\"\nendpoint = \"{}\"\nregion = \"us-east-1\"\nuser = \"key\"\npassword = \"file:{}\"",
            Store::s3().url(),
            secret.display()
        );
        // The secret is read whenever a node opens the store.
        vec![(Objects::Bucket(bucket), remote), (Objects::Directory(dir), local)]
    }
}

#[tokio::test]
async fn objects_go_when_nobody_refers_to_them_and_orphans_go_late() {
    for (objects, place) in &Objects::both().await {
        let registry = Registry { ebb: Ebb::new().await };
        registry.ebb.apply(&policy(place, "grace = \"0s\"\norphan_age = \"2s\"")).await;
        let (a, t, used, orphan) = (registry.holder("1 hour").await, name(OLD, 1), name(OLD, 2), name(OLD, 3));
        for name in [&t, &used] {
            registry.intend(name, a).await;
            objects.put(name).await;
            assert!(registry.ebb.db.scalar::<bool>(&format!("SELECT ebb.created('s', '{name}')")).await);
        }
        objects.put(&orphan).await;
        objects.put("report.csv").await;
        registry.decref(&t, a).await;
        assert_eq!(registry.passes("drop").await, 1);
        assert!(!left(objects).await.contains(&t));
        registry.confirm().await;
        eventually(SOON, || async {
            registry.passes("sweep").await;
            !left(objects).await.contains(&orphan)
        })
        .await;
        let mut expected = [used.clone(), "report.csv".into()];
        expected.sort();
        assert_eq!(left(objects).await, expected.join(","));
        assert_eq!((registry.state(&orphan).await.as_str(), registry.audited("drop").await), ("dropped", 2));
        registry.ebb.db.execute("UPDATE ebb.resource_store SET generation = 0").await;
        assert!(registry.fails("sweep").await.contains("older backup"));
        let other = super::another_installation().await;
        let error = other.try_apply(&policy(place, "")).await.unwrap_err();
        assert!(error.to_string().contains("another installation"), "{error}");
    }
}

#[tokio::test]
async fn a_directory_that_is_not_there_is_refused() {
    let ebb = Ebb::new().await;
    let error = ebb.try_apply(&policy("url = \"file:///nonexistent/ebb\"", "")).await.unwrap_err();
    assert!(error.to_string().contains("/nonexistent/ebb"), "{error}");
}
