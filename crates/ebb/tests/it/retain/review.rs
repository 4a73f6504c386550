//! The weekly review: whether anything was erased before its time, and what each tenant takes.

use crate::harness::Ebb;

#[tokio::test]
async fn a_premature_erasure_is_found_and_never_forgotten() {
    let ebb = Ebb::shop("tenant = \"tenant_id\"").await;
    ebb.db.execute("SELECT ebb.delete_subject('users', '1')").await;
    ebb.once("audit:audit").await;
    assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM ebb.review").await, 0, "not before its day");
    ebb.db.advance("91 days").await;
    ebb.once("users").await;
    ebb.once("audit:audit").await;
    let review = "SELECT (erased, premature)::text FROM ebb.review ORDER BY id DESC LIMIT 1";
    assert_eq!(ebb.db.scalar::<String>(review).await, "(1,0)");
    let tenants =
        "SELECT string_agg(tenant || '=' || rows, ' ' ORDER BY tenant) FROM ebb.tenant_storage WHERE policy = 'users'";
    assert_eq!(ebb.db.scalar::<String>(tenants).await, "=11 t0=4 t1=3 t2=4");
    let storage = ebb.engine.storage().await.unwrap();
    assert_eq!(storage[0].tenants.len(), 3);
    // Somebody erases a day too soon, whatever tells them that it is time.
    ebb.db
        .execute(
            "INSERT INTO ebb.audit (action, policy, policy_version, rows, by_name, details)
             SELECT 'erase', 'users', version, 1, 'x', jsonb_build_object('deletion', gen_random_uuid(),
                 'soft_deleted_at', ebb.now() - interval '89 days', 'erased_at', ebb.now(), 'expedited', false)
             FROM ebb.policy WHERE name = 'users'",
        )
        .await;
    for _ in 0..2 {
        ebb.db.advance("7 days").await;
        ebb.once("audit:audit").await;
        assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM ebb.premature").await, 1);
    }
    assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM ebb.audit WHERE action = 'review'").await, 3);
    assert_eq!(ebb.db.scalar::<String>(review).await, "(0,0)");
    // Whoever was deleted before our era is counted like anybody else.
    ebb.db.execute("UPDATE users SET deleted_at = '4713-01-01 BC' WHERE id = 2; UPDATE users SET deleted_at = '0001-01-01 BC' WHERE id = 3").await;
    ebb.once("users").await;
    ebb.db.advance("7 days").await;
    assert!(!ebb.once("audit:audit").await.has_failed());
    assert_eq!(ebb.db.scalar::<String>(review).await, "(2,0)");
    // A policy whose table is gone is passed by.
    ebb.db.execute("DROP TABLE users CASCADE").await;
    ebb.db.advance("7 days").await;
    let finished = ebb.once("audit:audit").await;
    assert!(finished.runs.iter().all(|run| run.note.is_none()), "{finished:?}");
}
