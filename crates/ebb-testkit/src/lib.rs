//! What the tests stand on: a real PostgreSQL per test process, a database per test, a clock that moves, nodes that
//! die and a network that fails. Nothing here sleeps for luck; waiting is waiting for a condition.

mod database;
mod eventually;
mod node;
mod peer;
mod proxy;
mod server;
mod stores;
mod temp;

pub use database::{TestDatabase, advance, database, empty_database, empty_database_on};
pub use eventually::eventually;
pub use node::Node;
pub use peer::Peer;
pub use proxy::Proxy;
pub use server::{Mode, Server, client_program, own_server, server};
pub use stores::{Store, libraries, request};
pub use temp::TempDir;
