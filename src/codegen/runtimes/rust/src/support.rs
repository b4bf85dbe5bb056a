//! What the generated types are read and written with.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{de, Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{json, Map, Value};

use crate::check;
use crate::{ErrorType, McpError};

/// A value that may be null, which is not the same as one that may be absent: that is an Option.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum OrNull<T> {
    Null,
    Value(T),
}

impl<T> OrNull<T> {
    pub fn as_option(&self) -> Option<&T> {
        match self {
            OrNull::Null => None,
            OrNull::Value(value) => Some(value),
        }
    }
}

impl<T> From<Option<T>> for OrNull<T> {
    fn from(value: Option<T>) -> Self {
        value.map_or(OrNull::Null, OrNull::Value)
    }
}

impl<T: Serialize> Serialize for OrNull<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.as_option().serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OrNull<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Anything but a plain Option: serde would take a missing field for null.
        struct Visit<T>(std::marker::PhantomData<T>);
        impl<'de, T: Deserialize<'de>> de::Visitor<'de> for Visit<T> {
            type Value = OrNull<T>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a value or null")
            }
            fn visit_none<E: de::Error>(self) -> Result<OrNull<T>, E> {
                Ok(OrNull::Null)
            }
            fn visit_unit<E: de::Error>(self) -> Result<OrNull<T>, E> {
                Ok(OrNull::Null)
            }
            fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<OrNull<T>, D::Error> {
                T::deserialize(deserializer).map(OrNull::Value)
            }
        }
        let value = Value::deserialize(deserializer)?;
        value.deserialize_option(Visit(std::marker::PhantomData)).map_err(de::Error::custom)
    }
}

/// No value at all: the schema accepts none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Never {}

impl Serialize for Never {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        match *self {}
    }
}

impl<'de> Deserialize<'de> for Never {
    fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        Err(de::Error::custom("no value fits here"))
    }
}

/// For fields that may be absent: null is not absence.
pub(crate) fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// Reads a value and holds it to its check.
pub(crate) fn read_checked<'de, D: Deserializer<'de>>(node: usize, deserializer: D) -> Result<Value, D::Error> {
    let mut value = Value::deserialize(deserializer)?;
    check::check(node, &value).map_err(de::Error::custom)?;
    check::normalize(&mut value);
    Ok(value)
}

pub(crate) fn fields_of(value: Value) -> Result<Map<String, Value>, serde_json::Error> {
    match value {
        Value::Object(fields) => Ok(fields),
        _ => Err(de::Error::custom("must be an object")),
    }
}

pub(crate) fn required<T: DeserializeOwned>(
    fields: &mut Map<String, Value>,
    name: &str,
) -> Result<T, serde_json::Error> {
    match fields.remove(name) {
        Some(value) => serde_json::from_value(value).map_err(|error| de::Error::custom(format!("{name}: {error}"))),
        None => Err(de::Error::custom(format!("{name} is required"))),
    }
}

pub(crate) fn optional<T: DeserializeOwned>(
    fields: &mut Map<String, Value>,
    name: &str,
) -> Result<Option<T>, serde_json::Error> {
    if fields.contains_key(name) {
        return required(fields, name).map(Some);
    }
    Ok(None)
}

pub(crate) fn others<T: DeserializeOwned>(
    fields: Map<String, Value>,
) -> Result<BTreeMap<String, T>, serde_json::Error> {
    fields.into_iter().map(|(name, value)| Ok((name, serde_json::from_value(value)?))).collect()
}

pub(crate) fn put<T: Serialize>(
    fields: &mut Map<String, Value>,
    name: &str,
    value: &T,
) -> Result<(), serde_json::Error> {
    fields.insert(name.to_owned(), serde_json::to_value(value)?);
    Ok(())
}

pub(crate) fn put_some<T: Serialize>(
    fields: &mut Map<String, Value>,
    name: &str,
    value: &Option<T>,
) -> Result<(), serde_json::Error> {
    value.as_ref().map_or(Ok(()), |value| put(fields, name, value))
}

pub(crate) fn put_others<T: Serialize>(
    fields: &mut Map<String, Value>,
    others: &BTreeMap<String, T>,
) -> Result<(), serde_json::Error> {
    others.iter().try_for_each(|(name, value)| put(fields, name, value))
}

/// Arguments to send. What does not fit the schema is not sent.
pub(crate) fn encode_args<T: Serialize + DeserializeOwned>(args: &T) -> Result<Value, McpError> {
    checked_value::<T>(args).map_err(|error| McpError::InvalidParams(error.to_string()))
}

pub(crate) fn decode_args<T: DeserializeOwned>(args: Value) -> Result<T, McpError> {
    serde_json::from_value(args).map_err(|error| McpError::InvalidParams(error.to_string()))
}

/// The whole result of a tool, from its structured part. One that does not fit the schema is the server's fault.
pub(crate) fn encode_result<T: Serialize + DeserializeOwned>(result: &T) -> Result<Value, McpError> {
    let value = checked_value::<T>(result).map_err(output_invalid)?;
    Ok(json!({ "content": [{ "type": "text", "text": value.to_string() }], "structuredContent": value }))
}

pub(crate) fn decode_result<T: DeserializeOwned>(mut result: Value) -> Result<T, McpError> {
    let content = result.get_mut("structuredContent").map(Value::take).unwrap_or_default();
    serde_json::from_value(content).map_err(output_invalid)
}

fn checked_value<T: Serialize + DeserializeOwned>(value: &T) -> Result<Value, serde_json::Error> {
    let value = serde_json::to_value(value)?;
    serde_json::from_value::<T>(value.clone())?;
    Ok(value)
}

fn output_invalid(error: serde_json::Error) -> McpError {
    McpError::new(ErrorType::OutputInvalid, error.to_string())
}

/// One side of a tool: nothing is read into it that its schema does not accept.
#[allow(unused_macros)]
macro_rules! checked {
    ($name:ident, $node:expr) => {
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let value = $crate::support::read_checked($node, deserializer)?;
                $name::read(value).map_err(serde::de::Error::custom)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mut value = self.write().map_err(serde::ser::Error::custom)?;
                $crate::check::normalize(&mut value);
                value.serialize(serializer)
            }
        }

        impl $name {
            /// What is wrong with this value by its schema, which says more than its type.
            pub fn check(&self) -> Result<(), $crate::McpError> {
                let value = self.write().map_err(|error| $crate::McpError::InvalidParams(error.to_string()))?;
                $crate::check::check($node, &value)
                    .map_err(|problem| $crate::McpError::InvalidParams(problem.to_string()))
            }
        }
    };
}

/// A union inside another type.
#[allow(unused_macros)]
macro_rules! chosen {
    ($name:ident) => {
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let value = <serde_json::Value as serde::Deserialize>::deserialize(deserializer)?;
                $name::read(value).map_err(serde::de::Error::custom)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let value = self.write().map_err(serde::ser::Error::custom)?;
                value.serialize(serializer)
            }
        }
    };
}

/// An enum whose values are not all texts.
#[allow(unused_macros)]
macro_rules! listed {
    ($name:ident) => {
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let value = <serde_json::Value as serde::Deserialize>::deserialize(deserializer)?;
                let found = $name::ALL.iter().find(|each| $crate::check::same(&each.to_value(), &value));
                found.copied().ok_or_else(|| serde::de::Error::custom("is none of the listed values"))
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serde::Serialize::serialize(&self.to_value(), serializer)
            }
        }
    };
}
