//! Three workers and a node, each a process, do what dice say: create, refer, clone, let go, die, freeze; drop and sweep.
//! A model of a few lines says what must be there. Invariants: no table goes while a living holder refers to it; none is
//! left after the last holder and a sweep; what somebody made again under a dropped name is not taken for it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ebb::spine::Status;
use ebb_testkit::{Peer, Store, eventually};
use uuid::Uuid;

use super::peers::{self, Shop};
use super::{Registry, name};
use crate::harness::{Ebb, SOON};

/// Twice as old as an orphan must be.
const OLD: Duration = Duration::from_secs(2 * 3600);

/// What a pass may fail of on a machine that stood still for a moment: the next one does its work.
const WAITED: &str = "lock timeout";

/// So many games in the ordinary run of the tests, and with `make soak`.
fn games(ordinary: u64, of_thousand: u64) -> u64 {
    let asked = std::env::var("EBB_INTERLEAVINGS").ok().and_then(|asked| asked.parse::<u64>().ok());
    asked.map_or(ordinary, |asked| asked * of_thousand / 1000)
}

fn seed() -> u64 {
    let given = std::env::var("EBB_SEED").ok().and_then(|seed| seed.parse().ok());
    given.unwrap_or_else(|| jiff::Timestamp::now().as_millisecond() as u64)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_table_goes_while_a_living_holder_refers_to_it_and_none_is_left_after_the_last() {
    let registry = Registry::with("grace = \"0s\"\norphan_age = \"1h\"").await;
    let shop = Shop::Schema(registry.ebb.db.pool().clone());
    Table::set(registry, shop).await.play(games(30, 800)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_holds_for_tables_in_clickhouse() {
    let (store, database) = (Store::clickhouse(), format!("m{}", Uuid::new_v4().simple()));
    store.query(&format!("CREATE DATABASE {database}")).await;
    let registry = Registry { ebb: Ebb::new().await };
    let policy = format!(
        "[[resources]]\nname = \"s\"\ndriver = \"clickhouse\"\nurl = \"{}/?database={database}\"\npattern = \"t{{snowflake}}\"
         grace = \"0s\"\norphan_age = \"1s\"\n",
        store.url()
    );
    registry.ebb.apply(&policy).await;
    Table::set(registry, Shop::House { port: store.port(), database }).await.play(games(6, 200)).await;
}

/// The same dice for the same seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides
    }

    fn coin(&mut self) -> bool {
        self.roll(2) == 0
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        (!from.is_empty()).then(|| from[self.roll(from.len())].clone())
    }
}

/// How many handles a holder is known to have on a table.
type Held = BTreeMap<String, u32>;

/// What a worker's ok will mean.
#[derive(Debug, Clone)]
enum Asked {
    /// One more handle on this table.
    Handle(String),
    /// The same, and the table exists from then on.
    Create(String),
    Nothing,
}

/// One worker as the model sees it.
struct Player {
    peer: Peer,
    holder: Uuid,
    held: Held,
    /// What it was told and has not answered.
    asked: Option<Asked>,
    frozen: bool,
    /// Its term ran out while it was frozen.
    dead: bool,
}

impl Player {
    async fn start(url: &str, shop: &Shop) -> Self {
        let mut peer = peers::start("worker", url, shop);
        let holder = peer.hear().await.expect("a worker starts").parse().unwrap();
        Self { peer, holder, held: Held::new(), asked: None, frozen: false, dead: false }
    }

    fn tell(&mut self, verb: &str, name: &str) {
        assert!(self.asked.is_none());
        self.peer.say(&format!("{verb} {name}"));
        self.asked = Some(match verb {
            "create" => Asked::Create(name.to_owned()),
            "refer" | "clone" => Asked::Handle(name.to_owned()),
            _ => Asked::Nothing,
        });
    }

    /// Hears what it answers, if it was told anything; with the table that exists from now on.
    async fn settle(&mut self) -> Option<(String, Option<String>)> {
        let asked = self.asked.take()?;
        let answer = self.peer.hear().await.expect("a worker that nobody killed answers");
        let (handle, made) = match asked {
            _ if answer != "ok" => (None, None),
            Asked::Create(name) => (Some(name.clone()), Some(name)),
            Asked::Handle(name) => (Some(name), None),
            Asked::Nothing => (None, None),
        };
        if let Some(name) = handle {
            *self.held.entry(name).or_default() += 1;
        }
        Some((answer, made))
    }

    /// From the moment it is told to let go, nothing is promised any more.
    fn lose(&mut self, name: &str) {
        if let Some(count) = self.held.get_mut(name) {
            *count -= 1;
            if *count == 0 {
                self.held.remove(name);
            }
        }
    }
}

/// Where they play.
struct Table {
    registry: Registry,
    shop: Shop,
    dice: Dice,
    players: Vec<Player>,
    /// Killed, and their term has not run out: what they refer to stays.
    ghosts: Vec<(Uuid, Held)>,
    node: Peer,
    node_asked: bool,
    /// Names of this game.
    names: Vec<String>,
    /// Those whose creator said that they exist: one may refer to what is only announced.
    made: BTreeSet<String>,
    /// Made again by somebody else under a name that was let go.
    strangers: BTreeSet<String>,
    count: u64,
    told: Vec<String>,
}

impl Table {
    async fn set(registry: Registry, shop: Shop) -> Self {
        registry.confirm().await;
        let url = registry.ebb.db.url().to_owned();
        let mut players = Vec::new();
        for _ in 0..3 {
            players.push(Player::start(&url, &shop).await);
        }
        let mut node = peers::start("node", &url, &shop);
        node.hear().await.expect("a node starts");
        Self {
            registry,
            shop,
            dice: Dice(0),
            players,
            ghosts: Vec::new(),
            node,
            node_asked: false,
            names: Vec::new(),
            made: BTreeSet::new(),
            strangers: BTreeSet::new(),
            count: 0,
            told: Vec::new(),
        }
    }

    async fn play(mut self, games: u64) {
        let first = seed();
        for game in 0..games {
            self.dice = Dice(first.wrapping_add(game));
            self.told = vec![format!("EBB_SEED={} game {game}", first.wrapping_add(game))];
            for _ in 0..8 + self.dice.roll(8) {
                self.step().await;
                self.check("while somebody holds it").await;
            }
            self.finish().await;
        }
    }

    fn note(&mut self, what: impl Into<String>) {
        self.told.push(what.into());
    }

    /// What a living holder is known to refer to is there.
    async fn check(&self, when: &str) {
        let there: BTreeSet<String> = self.shop.names().await.into_iter().collect();
        let held = self.players.iter().map(|player| &player.held).chain(self.ghosts.iter().map(|(_, held)| held));
        let held = held.flat_map(Held::keys).filter(|name| self.made.contains(*name));
        for name in held.chain(&self.strangers) {
            assert!(there.contains(name), "{name} is gone {when}:\n{}", self.told.join("\n"));
        }
    }

    fn new_name(&mut self) -> String {
        self.count += 1;
        let ago = if self.dice.coin() { OLD } else { Duration::ZERO };
        let name = name(ago, self.count);
        self.names.push(name.clone());
        name
    }

    /// A worker that can be told something, with nothing open.
    async fn ready(&mut self) -> usize {
        let who = self.dice.roll(3);
        if self.players[who].frozen {
            self.thaw(who).await;
        }
        self.settle(who).await;
        who
    }

    async fn settle(&mut self, who: usize) -> String {
        let Some((answer, made)) = self.players[who].settle().await else { return String::new() };
        self.made.extend(made);
        self.note(format!("  {who} answers {answer}"));
        answer
    }

    async fn tell(&mut self, who: usize, verb: &str, name: &str) {
        self.note(format!("{who} {verb} {name}"));
        self.players[who].tell(verb, name);
    }

    async fn step(&mut self) {
        match self.dice.roll(17) {
            0..=3 => self.create().await,
            4..=6 => self.refer().await,
            7 => self.clone_one().await,
            8 | 9 => self.let_go().await,
            10 => self.hand_over().await,
            11 => self.tell_node("s:drop").await,
            12 => self.tell_node("s:sweep").await,
            13 => self.kill_worker().await,
            14 => self.freeze_worker().await,
            15 => self.trouble_node().await,
            _ => self.stranger().await,
        }
    }

    async fn create(&mut self) {
        let (who, name) = (self.ready().await, self.new_name());
        // Now and then nobody announces it.
        let orphan = self.dice.roll(6) == 0;
        let verb = if orphan { "make" } else { "create" };
        self.tell(who, verb, &name).await;
        if self.dice.coin() {
            self.settle(who).await;
        }
    }

    async fn refer(&mut self) {
        let who = self.ready().await;
        let Some(name) = self.dice.pick(&self.names) else { return };
        self.tell(who, "refer", &name).await;
        if self.dice.coin() {
            // Whoever holds it holds it all the time: it cannot be too late.
            let sure = self.players.iter().any(|player| player.held.contains_key(&name));
            let answer = self.settle(who).await;
            assert!(!sure || answer == "ok", "refused, and somebody held it:\n{}", self.told.join("\n"));
        }
    }

    async fn clone_one(&mut self) {
        let who = self.ready().await;
        let names: Vec<String> = self.players[who].held.keys().cloned().collect();
        let Some(name) = self.dice.pick(&names) else { return };
        self.tell(who, "clone", &name).await;
        self.settle(who).await;
        if self.made.contains(&name) {
            self.tell(who, "use", &name).await;
            let used = self.settle(who).await;
            assert_eq!(used, "ok", "{}", self.told.join("\n"));
        }
    }

    async fn let_go(&mut self) {
        let who = self.ready().await;
        let names: Vec<String> = self.players[who].held.keys().cloned().collect();
        let Some(name) = self.dice.pick(&names) else { return };
        self.players[who].lose(&name);
        self.tell(who, "drop", &name).await;
    }

    /// One refers while another lets go, and perhaps the node drops: the one who refers has it, or is told.
    async fn hand_over(&mut self) {
        let from = self.ready().await;
        let to = (from + 1) % 3;
        if self.players[to].frozen {
            self.thaw(to).await;
        }
        self.settle(to).await;
        let names: Vec<String> = self.players[from].held.keys().cloned().collect();
        let Some(name) = self.dice.pick(&names) else { return };
        if self.dice.coin() {
            self.tell_node("s:drop").await;
        }
        self.players[from].lose(&name);
        self.tell(from, "drop", &name).await;
        self.tell(to, "refer", &name).await;
        self.settle(to).await;
        self.settle(from).await;
    }

    async fn settle_node(&mut self) {
        if std::mem::take(&mut self.node_asked) {
            let answer = self.node.hear().await.expect("a node that nobody killed answers");
            self.note(format!("  node answers {answer}"));
            assert!(!answer.contains("Failed") || answer.contains(WAITED), "{}", self.told.join("\n"));
        }
    }

    /// The node works while the others go on.
    async fn tell_node(&mut self, only: &str) {
        self.settle_node().await;
        self.note(format!("node {only}"));
        self.node.say(only);
        self.node_asked = true;
    }

    /// Some steps of whatever is under way have happened.
    async fn a_moment(&mut self) {
        tokio::time::sleep(Duration::from_millis(self.dice.roll(12) as u64)).await;
    }

    async fn kill_worker(&mut self) {
        let who = self.ready().await;
        if self.dice.coin() {
            let name = self.new_name();
            let verb = if self.dice.coin() { "create" } else { "make" };
            self.tell(who, verb, &name).await;
            self.a_moment().await;
        }
        self.replace(who).await;
    }

    /// SIGKILL, and another one in its place.
    async fn replace(&mut self, who: usize) {
        self.note(format!("{who} is killed"));
        self.players[who].peer.kill9();
        let fresh = Player::start(self.registry.ebb.db.url(), &self.shop).await;
        let dead = std::mem::replace(&mut self.players[who], fresh);
        if dead.dead {
            return;
        }
        if self.dice.coin() {
            self.note(format!("  the term of {who} runs out"));
            self.run_out(dead.holder).await;
        } else {
            self.ghosts.push((dead.holder, dead.held));
        }
    }

    async fn run_out(&mut self, holder: Uuid) {
        self.registry.kill(holder, "2").await;
        self.registry.end_dead().await;
    }

    /// SIGSTOP, in the middle of something or not; its term runs out meanwhile or not.
    async fn freeze_worker(&mut self) {
        let who = self.ready().await;
        if self.dice.coin() {
            let name = self.new_name();
            self.tell(who, "create", &name).await;
            self.a_moment().await;
        }
        self.note(format!("{who} is frozen"));
        self.players[who].peer.freeze();
        self.players[who].frozen = true;
        if self.dice.coin() {
            self.note(format!("  the term of {who} runs out"));
            self.players[who].dead = true;
            self.players[who].held.clear();
            let holder = self.players[who].holder;
            self.run_out(holder).await;
        }
    }

    /// SIGCONT. One whose term ran out is told so by the first thing it asks for, and starts again.
    async fn thaw(&mut self, who: usize) {
        self.note(format!("{who} goes on"));
        self.players[who].peer.thaw();
        self.players[who].frozen = false;
        if !self.players[who].dead {
            return;
        }
        self.settle(who).await;
        self.tell(who, "create", &name(OLD, 0)).await;
        let answer = self.settle(who).await;
        assert!(answer.contains("not alive") || answer.contains("ended"), "{}", self.told.join("\n"));
        self.restart(who).await;
        self.players[who].dead = false;
    }

    /// Ends its handler in order and starts another.
    async fn restart(&mut self, who: usize) {
        let player = &mut self.players[who];
        player.held.clear();
        player.peer.say("restart");
        player.holder = player.peer.hear().await.expect("a worker starts again").parse().unwrap();
    }

    /// The node dies or freezes in the middle of a pass, its lease runs out, and another one takes over.
    async fn trouble_node(&mut self) {
        let only = if self.dice.coin() { "s:drop" } else { "s:sweep" };
        self.tell_node(only).await;
        self.a_moment().await;
        let killed = self.dice.coin();
        self.note(if killed { "node is killed" } else { "node is frozen" });
        if killed {
            self.node.kill9();
        } else {
            self.node.freeze();
        }
        // What the server does with a batch whose client is silent, and time with its lease.
        let silent = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
                      WHERE datname = current_database() AND application_name LIKE 'ebb/n/%'";
        self.registry.ebb.db.execute(silent).await;
        let leases = "UPDATE ebb.lease SET expires_at = clock_timestamp() WHERE holder IS NOT NULL";
        self.registry.ebb.db.execute(leases).await;
        self.registry.pass("drop").await;
        if !killed {
            self.node.thaw();
            self.node_asked = false;
            self.node.hear().await.expect("a node that goes on answers");
            return;
        }
        self.node = peers::start("node", self.registry.ebb.db.url(), &self.shop);
        self.node.hear().await.expect("a node starts");
        self.node_asked = false;
    }

    /// Somebody makes a table again under a name that nobody refers to any more. Only where the store tells them apart.
    async fn stranger(&mut self) {
        if matches!(self.shop, Shop::House { .. }) {
            return;
        }
        let free =
            "SELECT coalesce(array_agg(r.name), '{}') FROM ebb.resource r WHERE r.state = 'dropped' AND NOT orphan";
        let free: Vec<String> = self.registry.ebb.db.scalar(free).await;
        let mut free: Vec<String> = free.into_iter().filter(|name| self.names.contains(name)).collect();
        free.retain(|name| !self.strangers.contains(name));
        let Some(name) = self.dice.pick(&free) else { return };
        if self.shop.names().await.contains(&name) {
            return;
        }
        self.note(format!("somebody makes {name} again"));
        self.shop.make(&name).await;
        self.strangers.insert(name);
    }

    /// A pass that goes well, at the latest when whatever stood still goes on.
    async fn passes(&self, chore: &str) {
        eventually(SOON, || async {
            let finished = self.registry.pass(chore).await;
            finished.runs.first().is_none_or(|run| {
                let waited = run.note.as_ref().is_some_and(|note| note.contains(WAITED));
                assert!(run.status == Status::Success || waited, "{run:?}\n{}", self.told.join("\n"));
                !waited
            })
        })
        .await;
    }

    /// Everybody lets go, in order or not; then a drop and a sweep leave nothing.
    async fn finish(&mut self) {
        for who in 0..3 {
            if self.players[who].frozen {
                self.thaw(who).await;
            }
            self.settle(who).await;
            match self.dice.roll(8) {
                0 => self.replace(who).await,
                1 => self.restart(who).await,
                _ => {
                    self.players[who].held.clear();
                    self.tell(who, "release", "").await;
                    let answer = self.settle(who).await;
                    assert_eq!(answer, "ok", "{}", self.told.join("\n"));
                }
            }
        }
        self.settle_node().await;
        for (holder, _) in std::mem::take(&mut self.ghosts) {
            self.run_out(holder).await;
        }
        // One that was frozen inside a transaction could not be ended then.
        self.registry.end_dead().await;
        // What somebody frozen had locked when it was to go is tried again half a minute later.
        self.registry.ebb.db.advance("1 minute").await;
        self.passes("drop").await;
        self.check("after the last drop").await;
        let left: i64 = self.registry.ebb.db.scalar("SELECT count(*) FROM ebb.reference").await;
        assert_eq!(left, 0, "{}", self.told.join("\n"));
        self.strangers.clear();
        if matches!(self.shop, Shop::House { .. }) {
            // Only time makes a table old by the store's own clock.
            eventually(SOON, || async {
                self.passes("drop").await;
                self.passes("sweep").await;
                self.shop.names().await.is_empty()
            })
            .await;
        } else {
            for _ in 0..2 {
                self.registry.ebb.db.advance("2 hours").await;
                self.passes("drop").await;
                self.passes("sweep").await;
            }
        }
        let names = self.shop.names().await;
        assert!(names.is_empty(), "{names:?} are left:\n{}", self.told.join("\n"));
        self.names.clear();
        self.made.clear();
    }
}
