//! Decides whether a value fits, by the table that was generated beside it.

use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;

use serde::Deserialize;
use serde_json::{Map, Number, Value};

use crate::formats::format_fits;
use crate::pattern::Program;

/// What does not fit, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// A JSON pointer.
    pub path: String,
    pub message: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = if self.path.is_empty() { "the value" } else { self.path.as_str() };
        write!(f, "{path} {}", self.message)
    }
}

impl std::error::Error for Problem {}

/// What is wrong with a value.
pub fn check(node: usize, value: &Value) -> Result<(), Problem> {
    let mut run = Run { steps: MAX_STEPS, problem: None };
    let fits = run.holds(node, value, "", 0, None);
    // Steps that ran out deny, wherever that happened: inside a negation it would otherwise look like success.
    if fits && run.steps >= 0 {
        return Ok(());
    }
    Err(run.problem.unwrap_or_else(|| Problem { path: String::new(), message: "does not fit".to_owned() }))
}

/// Whether a value fits.
pub fn fits(node: usize, value: &Value) -> bool {
    check(node, value).is_ok()
}

/// Whole numbers as integers, so that 1.0 is one; everything else unchanged.
pub fn normalize(value: &mut Value) {
    match value {
        Value::Number(number) => {
            if let Some(whole) = number.as_f64().filter(|_| number.is_f64()).and_then(as_whole) {
                *number = Number::from(whole);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(normalize),
        Value::Object(fields) => fields.values_mut().for_each(normalize),
        _ => {}
    }
}

fn as_whole(number: f64) -> Option<i64> {
    // Below 2^63 in size; both ends are exact as doubles.
    let inside = (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&number);
    (number.fract() == 0.0 && inside).then_some(number as i64)
}

pub fn has_type(value: &Value, name: &str) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "number" => value.is_number(),
        "integer" => match value {
            Value::Number(number) => is_integer(number),
            _ => false,
        },
        _ => false,
    }
}

fn is_integer(number: &Number) -> bool {
    !number.is_f64() || number.as_f64().is_some_and(|float| float.fract() == 0.0)
}

/// Equality as JSON Schema means it: 1 and 1.0 are equal, the order of fields does not count.
pub fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || (a.is_f64() != b.is_f64() && a.as_f64() == b.as_f64()),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| same(a, b)))
        }
        _ => a == b,
    }
}

const MAX_STEPS: i64 = 5_000_000;
const MAX_DEPTH: usize = 256;

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Node {
    never: bool,
    types: Option<Vec<String>>,
    values: Option<Vec<Value>>,
    minimum: Option<f64>,
    maximum: Option<f64>,
    exclusive_minimum: Option<f64>,
    exclusive_maximum: Option<f64>,
    multiple_of: Option<f64>,
    min_length: Option<f64>,
    max_length: Option<f64>,
    patterns: Vec<usize>,
    format: Option<String>,
    properties: Vec<(String, usize)>,
    pattern_properties: Vec<(usize, usize)>,
    additional_properties: Option<usize>,
    unevaluated_properties: Option<usize>,
    property_names: Option<usize>,
    required: Vec<String>,
    min_properties: Option<f64>,
    max_properties: Option<f64>,
    dependent_required: Vec<(String, Vec<String>)>,
    dependent_schemas: Vec<(String, usize)>,
    prefix_items: Vec<usize>,
    items: Option<usize>,
    unevaluated_items: Option<usize>,
    contains: Option<usize>,
    min_contains: Option<f64>,
    max_contains: Option<f64>,
    min_items: Option<f64>,
    max_items: Option<f64>,
    unique_items: bool,
    all: Vec<usize>,
    any: Option<Vec<usize>>,
    one: Option<Vec<usize>>,
    not: Option<usize>,
    #[serde(rename = "if")]
    when: Option<usize>,
    then: Option<usize>,
    #[serde(rename = "else")]
    otherwise: Option<usize>,
    #[serde(skip)]
    known: HashMap<String, usize>,
}

#[derive(Deserialize)]
struct Table {
    nodes: Vec<Node>,
    patterns: Vec<Option<Program>>,
}

fn table() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(|| {
        let mut table: Table = serde_json::from_str(include_str!("table.json")).expect("table.json was generated");
        for node in &mut table.nodes {
            node.known = std::mem::take(&mut node.properties).into_iter().collect();
        }
        table
    })
}

/// What has been looked at already, for the keywords that ask.
#[derive(Default)]
struct Seen {
    names: HashSet<String>,
    all_names: bool,
    items: HashSet<usize>,
    all_items: bool,
}

struct Run {
    steps: i64,
    problem: Option<Problem>,
}

impl Run {
    fn fail(&mut self, path: &str, message: impl Into<String>) -> bool {
        if self.problem.is_none() {
            self.problem = Some(Problem { path: path.to_owned(), message: message.into() });
        }
        false
    }

    /// A branch that does not fit is not a problem by itself. Running out of steps is.
    fn quietly(&mut self, id: usize, value: &Value, path: &str, depth: usize, seen: Option<&mut Seen>) -> bool {
        let before = self.problem.take();
        let answer = self.holds(id, value, path, depth, seen);
        if self.steps >= 0 {
            self.problem = before;
        }
        answer && self.steps >= 0
    }

    fn holds(&mut self, id: usize, value: &Value, path: &str, depth: usize, outer: Option<&mut Seen>) -> bool {
        let Some(node) = table().nodes.get(id) else {
            return self.fail(path, "has no check");
        };
        self.steps -= 1;
        if depth > MAX_DEPTH {
            self.steps = -1;
            return self.fail(path, "is nested too deep");
        }
        if self.steps < 0 {
            return self.fail(path, "takes too long to check");
        }
        if node.never {
            return self.fail(path, "must not be there");
        }
        if let Some(types) = &node.types {
            if !types.iter().any(|name| has_type(value, name)) {
                return self.fail(path, format!("must be of type {}", types.join(" or ")));
            }
        }
        if let Some(values) = &node.values {
            if !values.iter().any(|allowed| same(allowed, value)) {
                return self.fail(path, "must be one of the listed values");
            }
        }
        let asks = node.unevaluated_items.is_some() || node.unevaluated_properties.is_some();
        let mut seen = (asks || outer.is_some()).then(Seen::default);
        let fits = match value {
            Value::String(text) => self.text(node, text, path),
            Value::Number(number) => self.number(node, number, path),
            Value::Array(items) => self.list(node, items, path, depth, seen.as_mut()),
            Value::Object(fields) => self.fields(node, value, fields, path, depth, seen.as_mut()),
            _ => true,
        };
        if !fits || !self.together(node, value, path, depth, seen.as_mut()) {
            return false;
        }
        if let Some(seen) = seen.as_mut() {
            if !self.leftovers(node, value, path, depth, seen) {
                return false;
            }
        }
        if let (Some(outer), Some(seen)) = (outer, seen) {
            outer.names.extend(seen.names);
            outer.items.extend(seen.items);
            outer.all_names |= seen.all_names;
            outer.all_items |= seen.all_items;
        }
        true
    }

    fn text(&mut self, node: &Node, text: &str, path: &str) -> bool {
        self.steps -= (text.len() >> 4) as i64;
        if node.min_length.is_some() || node.max_length.is_some() {
            let length = text.chars().count() as f64;
            if node.min_length.is_some_and(|min| length < min) || node.max_length.is_some_and(|max| length > max) {
                return self.fail(path, "must have another number of characters");
            }
        }
        for id in &node.patterns {
            if !self.matches(*id, text) {
                return self.fail(path, "must match its pattern");
            }
        }
        match node.format.as_deref() {
            Some(name) if !format_fits(name, text) => self.fail(path, format!("must be of format {name}")),
            _ => true,
        }
    }

    fn matches(&mut self, id: usize, text: &str) -> bool {
        match table().patterns.get(id) {
            // Reported when this was generated: the pattern is beyond what can be run here.
            Some(None) | None => true,
            Some(Some(program)) => program.is_match(text, &mut self.steps),
        }
    }

    fn number(&mut self, node: &Node, number: &Number, path: &str) -> bool {
        let value = number.as_f64().unwrap_or(f64::NAN);
        if node.minimum.is_some_and(|limit| value < limit) || node.exclusive_minimum.is_some_and(|limit| value <= limit)
        {
            return self.fail(path, "is too small");
        }
        if node.maximum.is_some_and(|limit| value > limit) || node.exclusive_maximum.is_some_and(|limit| value >= limit)
        {
            return self.fail(path, "is too large");
        }
        if let Some(divisor) = node.multiple_of {
            if !is_multiple(value, divisor) {
                return self.fail(path, format!("must be a multiple of {divisor}"));
            }
        }
        let fits = match node.format.as_deref() {
            Some("int32") => is_integer(number) && (-2_147_483_648.0..=2_147_483_647.0).contains(&value),
            Some("int64") => is_integer(number),
            _ => true,
        };
        fits || self.fail(path, "must be of its format")
    }

    fn list(&mut self, node: &Node, items: &[Value], path: &str, depth: usize, mut seen: Option<&mut Seen>) -> bool {
        let length = items.len() as f64;
        if node.min_items.is_some_and(|min| length < min) || node.max_items.is_some_and(|max| length > max) {
            return self.fail(path, "must have another number of items");
        }
        for (i, item) in items.iter().enumerate() {
            let Some(id) = node.prefix_items.get(i).copied().or(node.items) else {
                break;
            };
            if let Some(seen) = seen.as_deref_mut() {
                seen.items.insert(i);
            }
            if !self.holds(id, item, &format!("{path}/{i}"), depth + 1, None) {
                return false;
            }
        }
        if let Some(id) = node.contains {
            let mut found = 0.0;
            for (i, item) in items.iter().enumerate() {
                if self.quietly(id, item, path, depth + 1, None) {
                    found += 1.0;
                    if let Some(seen) = seen.as_deref_mut() {
                        seen.items.insert(i);
                    }
                }
            }
            if found < node.min_contains.unwrap_or(1.0) || node.max_contains.is_some_and(|max| found > max) {
                return self.fail(path, "must contain the right number of matching items");
            }
        }
        if node.unique_items {
            let mut keys = HashSet::new();
            for item in items {
                let mut key = String::new();
                self.key_of(item, &mut key);
                if !keys.insert(key) {
                    return self.fail(path, "must not hold an item twice");
                }
            }
        }
        true
    }

    fn fields(
        &mut self,
        node: &Node,
        value: &Value,
        fields: &Map<String, Value>,
        path: &str,
        depth: usize,
        mut seen: Option<&mut Seen>,
    ) -> bool {
        for name in &node.required {
            if !fields.contains_key(name) {
                return self.fail(&format!("{path}/{name}"), "is required");
            }
        }
        let size = fields.len() as f64;
        if node.min_properties.is_some_and(|min| size < min) || node.max_properties.is_some_and(|max| size > max) {
            return self.fail(path, "must have another number of properties");
        }
        for (name, inner) in fields {
            let at = format!("{path}/{name}");
            if let Some(id) = node.property_names {
                if !self.quietly(id, &Value::String(name.clone()), &at, depth + 1, None) {
                    return self.fail(&at, "has a name that is not allowed");
                }
            }
            let mut ids: Vec<usize> = node.known.get(name).copied().into_iter().collect();
            for (pattern, id) in &node.pattern_properties {
                if self.matches(*pattern, name) {
                    ids.push(*id);
                }
            }
            if ids.is_empty() {
                ids.extend(node.additional_properties);
            }
            if !ids.is_empty() {
                if let Some(seen) = seen.as_deref_mut() {
                    seen.names.insert(name.clone());
                }
            }
            for id in ids {
                if !self.holds(id, inner, &at, depth + 1, None) {
                    return false;
                }
            }
        }
        for (name, wanted) in &node.dependent_required {
            if fields.contains_key(name) {
                if let Some(missing) = wanted.iter().find(|other| !fields.contains_key(*other)) {
                    return self.fail(&format!("{path}/{missing}"), format!("is required beside {name}"));
                }
            }
        }
        for (name, id) in &node.dependent_schemas {
            if fields.contains_key(name) && !self.holds(*id, value, path, depth + 1, seen.as_deref_mut()) {
                return false;
            }
        }
        true
    }

    fn together(&mut self, node: &Node, value: &Value, path: &str, depth: usize, mut seen: Option<&mut Seen>) -> bool {
        for id in &node.all {
            if !self.holds(*id, value, path, depth + 1, seen.as_deref_mut()) {
                return false;
            }
        }
        if let Some(branches) = &node.any {
            let mut fitting = false;
            for id in branches {
                // With something to remember, every branch that fits counts; otherwise the first is enough.
                fitting |= self.quietly(*id, value, path, depth + 1, seen.as_deref_mut());
                if fitting && seen.is_none() {
                    break;
                }
            }
            if !fitting {
                return self.fail(path, "fits none of the alternatives");
            }
        }
        if let Some(branches) = &node.one {
            let mut fitting = Vec::new();
            for id in branches {
                if self.quietly(*id, value, path, depth + 1, None) {
                    fitting.push(*id);
                }
            }
            let [only] = fitting[..] else {
                return self.fail(path, format!("must fit exactly one alternative, not {}", fitting.len()));
            };
            if seen.is_some() {
                self.quietly(only, value, path, depth + 1, seen.as_deref_mut());
            }
        }
        if let Some(id) = node.not {
            if self.quietly(id, value, path, depth + 1, None) {
                return self.fail(path, "must not be what it is");
            }
        }
        if let Some(id) = node.when {
            let next =
                if self.quietly(id, value, path, depth + 1, seen.as_deref_mut()) { node.then } else { node.otherwise };
            if let Some(id) = next {
                return self.holds(id, value, path, depth + 1, seen);
            }
        }
        true
    }

    fn leftovers(&mut self, node: &Node, value: &Value, path: &str, depth: usize, seen: &mut Seen) -> bool {
        if let (Some(id), Value::Object(fields), false) = (node.unevaluated_properties, value, seen.all_names) {
            for (name, inner) in fields {
                if !seen.names.contains(name) && !self.holds(id, inner, &format!("{path}/{name}"), depth + 1, None) {
                    return false;
                }
            }
            seen.all_names = true;
        }
        if let (Some(id), Value::Array(items), false) = (node.unevaluated_items, value, seen.all_items) {
            for (i, item) in items.iter().enumerate() {
                if !seen.items.contains(&i) && !self.holds(id, item, &format!("{path}/{i}"), depth + 1, None) {
                    return false;
                }
            }
            seen.all_items = true;
        }
        true
    }

    /// Equal exactly for values that are the same.
    fn key_of(&mut self, value: &Value, key: &mut String) {
        self.steps -= 1;
        match value {
            Value::Array(items) => {
                key.push('[');
                for item in items {
                    self.key_of(item, key);
                    key.push(',');
                }
                key.push(']');
            }
            Value::Object(fields) => {
                let mut names: Vec<_> = fields.keys().collect();
                names.sort();
                key.push('{');
                for name in names {
                    key.push_str(&Value::String(name.clone()).to_string());
                    key.push(':');
                    self.key_of(&fields[name], key);
                    key.push(',');
                }
                key.push('}');
            }
            other => {
                let mut other = other.clone();
                normalize(&mut other);
                key.push_str(&other.to_string());
            }
        }
    }
}

/// In the decimals that people write: 19.99 is a multiple of 0.01.
fn is_multiple(value: f64, divisor: f64) -> bool {
    if value % divisor == 0.0 {
        return true;
    }
    if value.fract() == 0.0 && divisor.fract() == 0.0 {
        return false;
    }
    let (Some((a, a_power)), Some((b, b_power))) = (decimal(value), decimal(divisor)) else {
        return false;
    };
    if a_power >= b_power {
        // a · 10^n modulo b, step by step, so that nothing grows too large.
        let mut rest = a % b;
        for _ in 0..(a_power - b_power) {
            rest = rest * 10 % b;
        }
        return rest == 0;
    }
    let mut scaled = b;
    for _ in 0..(b_power - a_power) {
        match scaled.checked_mul(10) {
            Some(next) => scaled = next,
            // Larger than any number of digits that could stand above it.
            None => return a == 0,
        }
    }
    a % scaled == 0
}

/// The shortest decimal that reads back as this number: digits and a power of ten.
fn decimal(value: f64) -> Option<(u128, i32)> {
    let text = format!("{:e}", value.abs());
    let (mantissa, power) = text.split_once('e')?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}").parse().ok()?;
    Some((digits, power.parse::<i32>().ok()? - fraction.len() as i32))
}
