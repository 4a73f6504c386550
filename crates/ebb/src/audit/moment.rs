//! A point in time exactly as PostgreSQL stores it: microseconds, including the infinities and years that calendars
//! refuse. Invariant: reading and hashing it loses nothing, so a record verifies whatever its times are.

use std::fmt;

use sqlx::encode::{Encode, IsNull};
use sqlx::error::BoxDynError;
use sqlx::postgres::{PgArgumentBuffer, PgHasArrayType, PgTypeInfo, PgValueFormat, PgValueRef, Postgres};
use sqlx::{Decode, Type};

/// 2000-01-01, where PostgreSQL starts counting, in microseconds since 1970.
const POSTGRES_EPOCH: i64 = 946_684_800_000_000;

/// What follows the microseconds where no calendar knows the moment.
const BEYOND: &str = " µs after 1970";

/// A `timestamptz`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(i64);

impl Moment {
    /// Before everything.
    pub const NEG_INFINITY: Self = Self(i64::MIN);
    /// After everything.
    pub const INFINITY: Self = Self(i64::MAX);

    /// Microseconds since 1970-01-01 UTC.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Microseconds since 1970-01-01 UTC; the infinities are the ends of the range.
    pub const fn micros(self) -> i64 {
        self.0
    }

    /// As a calendar knows it: `None` for the infinities and for years past 9999.
    pub fn timestamp(self) -> Option<jiff::Timestamp> {
        jiff::Timestamp::from_microsecond(self.0).ok()
    }
}

impl From<jiff::Timestamp> for Moment {
    fn from(timestamp: jiff::Timestamp) -> Self {
        Self(timestamp.as_microsecond())
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (*self, self.timestamp()) {
            (Self::NEG_INFINITY, _) => f.write_str("-infinity"),
            (Self::INFINITY, _) => f.write_str("infinity"),
            (_, Some(timestamp)) => timestamp.fmt(f),
            (Self(micros), None) => write!(f, "{micros}{BEYOND}"),
        }
    }
}

impl serde::Serialize for Moment {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Moment {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match &*String::deserialize(deserializer)? {
            "-infinity" => Ok(Self::NEG_INFINITY),
            "infinity" => Ok(Self::INFINITY),
            text => match text.strip_suffix(BEYOND).map(str::parse) {
                Some(micros) => micros.map(Self).map_err(serde::de::Error::custom),
                None => text.parse::<jiff::Timestamp>().map(Self::from).map_err(serde::de::Error::custom),
            },
        }
    }
}

/// RFC 3339 in UTC; before and after everything are `-infinity` and `infinity`, which is why no format is named.
#[cfg(feature = "openapi")]
impl utoipa::PartialSchema for Moment {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        let text = utoipa::openapi::schema::ObjectBuilder::new().schema_type(utoipa::openapi::schema::Type::String);
        text.examples(["2025-11-15T12:00:00Z"]).into()
    }
}

#[cfg(feature = "openapi")]
impl utoipa::ToSchema for Moment {}

impl Type<Postgres> for Moment {
    fn type_info() -> PgTypeInfo {
        <jiff_sqlx::Timestamp as Type<Postgres>>::type_info()
    }
}

impl PgHasArrayType for Moment {
    fn array_type_info() -> PgTypeInfo {
        <jiff_sqlx::Timestamp as PgHasArrayType>::array_type_info()
    }
}

impl Encode<'_, Postgres> for Moment {
    fn encode_by_ref(&self, buf: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        let wire = match *self {
            Self::NEG_INFINITY | Self::INFINITY => self.0,
            Self(micros) => micros.checked_sub(POSTGRES_EPOCH).ok_or("time out of range")?,
        };
        <i64 as Encode<Postgres>>::encode(wire, buf)
    }
}

impl<'r> Decode<'r, Postgres> for Moment {
    fn decode(value: PgValueRef<'r>) -> Result<Self, BoxDynError> {
        if value.format() != PgValueFormat::Binary {
            return Err("a timestamptz in text form where binary was asked for".into());
        }
        match <i64 as Decode<Postgres>>::decode(value)? {
            wire @ (i64::MIN | i64::MAX) => Ok(Self(wire)),
            wire => Ok(Self(wire.checked_add(POSTGRES_EPOCH).ok_or("time out of range")?)),
        }
    }
}
