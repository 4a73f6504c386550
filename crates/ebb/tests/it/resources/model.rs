//! Three workers do what they like, die when they like, and a model of a few lines says what must be there.

use std::time::Duration;

use ebb::resources::{Handle, LifecycleHandler, PostgresHandler, Worker};
use serde_json::json;

use super::{Registry, name};

/// The same dice for the same seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides
    }
}

struct Player {
    handler: PostgresHandler,
    held: Vec<(String, Handle)>,
}

impl Player {
    async fn start(registry: &Registry) -> Self {
        let handler = PostgresHandler::start(registry.ebb.db.open(), "s", Worker::new("player")).await.unwrap();
        Self { handler, held: Vec::new() }
    }
}

fn seed() -> u64 {
    let given = std::env::var("EBB_SEED").ok().and_then(|seed| seed.parse().ok());
    given.unwrap_or_else(|| jiff::Timestamp::now().as_nanosecond() as u64)
}

/// No table goes while a living holder refers to it, none is left after the last holder and a pass. `EBB_SOAK` plays longer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_table_goes_while_a_living_holder_refers_to_it_and_none_is_left_after_the_last() {
    let seed = seed();
    eprintln!("EBB_SEED={seed}");
    let mut dice = Dice(seed);
    let registry = Registry::with("grace = \"0s\"").await;
    let mut players =
        vec![Player::start(&registry).await, Player::start(&registry).await, Player::start(&registry).await];
    let steps = if std::env::var_os("EBB_SOAK").is_some() { 1_000 } else { 60 };
    for step in 0..steps {
        let who = dice.roll(3);
        match dice.roll(7) {
            0 | 1 => {
                let t = name(Duration::ZERO, step);
                let player = &mut players[who];
                let handle = player.handler.announce(&t, json!({})).await.unwrap();
                registry.make(&t).await;
                player.handler.created(&handle, None).await.unwrap();
                player.held.push((t, handle));
            }
            2 | 3 => {
                // Refers to what another one holds, by its name, as it would arrive in a message.
                let other = dice.roll(3);
                if let Some((t, _)) = players[other].held.first().map(|(t, h)| (t.clone(), h.clone())) {
                    let handle = players[who].handler.incref(&t);
                    players[who].handler.flush().await.unwrap();
                    assert_eq!(handle.name().unwrap(), t, "step {step}: somebody held it");
                    players[who].held.push((t, handle));
                }
            }
            4 => {
                let clones: Vec<(String, Handle)> = players[who].held.clone();
                players[who].held.extend(clones.into_iter().take(3));
            }
            5 => {
                let player = &mut players[who];
                if !player.held.is_empty() {
                    let at = dice.roll(player.held.len());
                    player.held.swap_remove(at);
                }
            }
            _ => {
                // Killed: nobody hears from it again, and its term runs out.
                let dead = std::mem::replace(&mut players[who], Player::start(&registry).await);
                let holder = dead.handler.holder();
                drop(dead.handler);
                registry.kill(holder, "2").await;
                registry.end_dead().await;
                drop(dead.held);
            }
        }
        if dice.roll(3) == 0 {
            registry.passes("drop").await;
        }
        let there = registry.tables().await;
        for (t, _) in players.iter().flat_map(|player| &player.held) {
            assert!(
                there.contains(t.as_str()),
                "step {step}: {t} is gone, and somebody refers to it (EBB_SEED={seed})"
            );
        }
    }
    for player in players {
        player.handler.stop().await.unwrap();
    }
    registry.passes("drop").await;
    assert_eq!(registry.tables().await, "", "EBB_SEED={seed}");
    let loose: i64 = registry.ebb.db.scalar("SELECT count(*) FROM ebb.reference").await;
    assert_eq!(loose, 0);
}
