//! Everything that knows PostgreSQL and nothing of duties: connections, names, the catalog, migrations.

pub mod binaries;
pub(crate) mod body;
pub mod catalog;
pub mod embedded;
pub mod expression;
pub(crate) mod sandbox;
pub mod survey;
pub mod uninstall;

mod connect;
mod ident;
mod migrate;
mod operators;
mod warm;

pub(crate) use connect::answered;
pub use connect::{Database, Guard, Target};
pub use ident::{Ident, Literal, Relation};
pub(crate) use ident::{block, quoted};
pub use migrate::latest_version;
pub use migrate::{Migrated, migrate, schema_version};
pub(crate) use migrate::{may_create_schema, owns_schema, require_writable};
pub(crate) use operators::{Operators, beyond};
pub use warm::Warm;

/// A query from a `.sql` file beside the caller, unprepared so that it also works through a transaction pooler.
#[macro_export]
#[doc(hidden)]
macro_rules! sql {
    ($file:literal) => {
        sqlx::query(include_str!(concat!("sql/", $file, ".sql"))).persistent(false)
    };
    ($file:literal as $row:ty) => {
        sqlx::query_as::<_, $row>(include_str!(concat!("sql/", $file, ".sql"))).persistent(false)
    };
    ($file:literal scalar $value:ty) => {
        sqlx::query_scalar::<_, $value>(include_str!(concat!("sql/", $file, ".sql"))).persistent(false)
    };
}
