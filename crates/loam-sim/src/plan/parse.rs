//! Reads a plan.

use super::Value;
use super::parameters::{Kind, PARAMETERS, Parameter, TITLE, nearest, parameter_of};
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Largest plan that is read.
pub(super) const PLAN_BYTES_MAX: usize = 1 << 20;
/// Values of one parameter.
const VALUES_MAX: usize = 10_000;
/// Points of one plan: each costs seconds or minutes.
const POINTS_MAX: usize = 100_000;

/// A plan that cannot be used: where it is wrong, and what to write.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct PlanError {
    /// Line of the file, from 1.
    pub line: usize,
    /// What is wrong, and what was expected.
    pub what: String,
}

/// A plan, read and checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    text: String,
    title: String,
    parameters: Vec<(&'static str, Vec<Value>)>,
}

/// One configuration of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Its place in the plan's order.
    pub index: usize,
    values: Vec<(&'static str, Value)>,
}

impl Point {
    /// The value of a parameter, if the plan names it or it has a default.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.values.iter().find(|(own, _)| *own == name).map(|(_, value)| value)
    }

    /// The text of a parameter; empty if it has none.
    pub fn text(&self, name: &str) -> &str {
        match self.get(name) {
            Some(Value::Text(text)) => text,
            _ => "",
        }
    }

    /// The whole number of a parameter.
    pub fn whole(&self, name: &str) -> Option<u64> {
        match self.get(name) {
            Some(Value::Whole(whole)) => Some(*whole),
            _ => None,
        }
    }

    /// Parameters and their values: first those of the plan, in its order.
    pub fn values(&self) -> &[(&'static str, Value)] {
        &self.values
    }
}

impl Plan {
    /// Reads a plan from its text.
    ///
    /// # Errors
    /// [`PlanError`], with the line.
    pub fn parse(text: &str) -> Result<Self, PlanError> {
        if text.len() > PLAN_BYTES_MAX {
            return Err(PlanError { line: 1, what: "a plan has at most 1 MiB".into() });
        }
        let line = |span: Range<usize>| line_of(text, span.start);
        let table = DeTable::parse(text).map_err(|error| PlanError {
            line: error.span().map_or(1, line),
            what: error.message().lines().collect::<Vec<_>>().join(", "),
        })?;
        let mut keys: Vec<_> = table.get_ref().iter().collect();
        keys.sort_by_key(|(key, _)| key.span().start);
        let (mut title, mut parameters) = (String::new(), Vec::new());
        for (key, value) in keys {
            let fail = |what| PlanError { line: line(key.span()), what };
            let name = key.get_ref().as_ref();
            if name == TITLE {
                title = value.get_ref().as_str().ok_or_else(|| fail("title is text".into()))?.into();
                continue;
            }
            let Some(parameter) = parameter_of(name) else {
                let hint = match nearest(name) {
                    Some(near) => format!("did you mean {near}?"),
                    None => format!("known keys are {TITLE}, {}", names().join(", ")),
                };
                return Err(fail(format!("unknown key {name:?}: {hint}")));
            };
            let values =
                values(parameter, value).map_err(|(span, what)| PlanError { line: line(span), what })?;
            parameters.push((parameter.name, values));
        }
        let plan = Self { text: text.into(), title, parameters };
        plan.check()?;
        Ok(plan)
    }

    fn check(&self) -> Result<(), PlanError> {
        let fail = |what| Err(PlanError { line: line_of(&self.text, self.text.len()), what });
        let has = |name| self.parameters.iter().any(|(own, _)| *own == name);
        if let Some(missing) = PARAMETERS.iter().find(|parameter| parameter.required && !has(parameter.name))
        {
            return fail(format!("the plan has no {}: {}", missing.name, missing.kind.expected()));
        }
        if has("local_pages") && has("local_share") {
            return fail("local_pages and local_share say the same thing: keep one of them".into());
        }
        let mut points = 1_usize;
        for (_, values) in &self.parameters {
            points = points.saturating_mul(values.len());
        }
        if points > POINTS_MAX {
            return fail(format!(
                "{points} points: a plan has at most {POINTS_MAX}; sweep less, or make two plans"
            ));
        }
        Ok(())
    }

    /// The text that it was read from.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Its title; empty if it has none.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// Parameters with more than one value, in the plan's order.
    pub fn swept(&self) -> Vec<&'static str> {
        self.parameters.iter().filter(|(_, values)| values.len() > 1).map(|(name, _)| *name).collect()
    }

    /// All values of a parameter, if the plan names it.
    pub fn values(&self, name: &str) -> Option<&[Value]> {
        self.parameters.iter().find(|(own, _)| *own == name).map(|(_, values)| values.as_slice())
    }

    /// How many points there are.
    pub fn len(&self) -> usize {
        self.parameters.iter().map(|(_, values)| values.len()).product()
    }

    /// Never: each parameter has a value.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All points, in order: the last parameter varies fastest.
    pub fn points(&self) -> Vec<Point> {
        (0..self.len()).map(|index| self.point(index)).collect()
    }

    fn point(&self, index: usize) -> Point {
        let mut left = index;
        let mut values: Vec<(&'static str, Value)> = Vec::new();
        for (name, all) in self.parameters.iter().rev() {
            values.push((name, all[left % all.len()].clone()));
            left /= all.len();
        }
        values.reverse();
        let mut point = Point { index, values };
        for Parameter { name, .. } in &PARAMETERS {
            if let Some(value) = default(name, &point).filter(|_| point.get(name).is_none()) {
                point.values.push((name, value));
            }
        }
        point
    }
}

/// What a parameter is where the plan is silent.
fn default(name: &str, point: &Point) -> Option<Value> {
    Some(match name {
        // Hardware decides over 4 KiB; below that only the simulator can.
        "unit_bytes" => Value::Whole(point.whole("subpage_bytes")?.min(4096)),
        "local_share" if point.get("local_pages").is_none() => Value::Real(1.0),
        "fetch_plan" => Value::Text("eager".into()),
        // As live.
        "replacement" => Value::Text("second-chance".into()),
        "pipelined_unattended" => Value::Switch(false),
        _ => return None,
    })
}

fn names() -> Vec<&'static str> {
    PARAMETERS.iter().map(|parameter| parameter.name).collect()
}

fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes()[..at.min(text.len())].iter().filter(|byte| **byte == b'\n').count() + 1
}

type Wrong = (Range<usize>, String);

/// The values of a parameter: one, a list, or a range.
fn values(parameter: &Parameter, given: &Spanned<DeValue<'_>>) -> Result<Vec<Value>, Wrong> {
    let mut found: Vec<Value> = Vec::new();
    match given.get_ref() {
        DeValue::Array(list) => {
            for value in list.iter() {
                let added = match value.get_ref() {
                    DeValue::Table(table) => range(parameter, table, value.span())?,
                    _ => vec![one(parameter, value)?],
                };
                found.extend(added);
                if found.len() > VALUES_MAX {
                    break;
                }
            }
        }
        DeValue::Table(table) => found = range(parameter, table, given.span())?,
        _ => found.push(one(parameter, given)?),
    }
    let fail = |what: String| Err((given.span(), format!("{}: {what}", parameter.name)));
    if found.is_empty() || found.len() > VALUES_MAX {
        return fail(format!("1 to {VALUES_MAX} values, not {}", found.len()));
    }
    for (at, value) in found.iter().enumerate() {
        if found[..at].contains(value) {
            return fail(format!("{value} is there twice"));
        }
    }
    Ok(found)
}

fn one(parameter: &Parameter, given: &Spanned<DeValue<'_>>) -> Result<Value, Wrong> {
    let kind = parameter.kind;
    let value = match given.get_ref() {
        DeValue::String(text) => kind.of_text(text),
        DeValue::Integer(whole) => {
            u64::from_str_radix(whole.as_str(), whole.radix()).ok().and_then(|whole| kind.of_whole(whole))
        }
        DeValue::Float(number) => number.as_str().parse().ok().and_then(|number| kind.of_number(number)),
        DeValue::Boolean(switch) => (kind == Kind::Switch).then_some(Value::Switch(*switch)),
        DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => None,
    };
    value.ok_or_else(|| (given.span(), format!("{}: expected {}", parameter.name, kind.expected())))
}

/// The values of `{ from = , to = , step = }` or `{ from = , to = , times = }`; `to` is one of them if a step ends there.
fn range(parameter: &Parameter, table: &DeTable<'_>, span: Range<usize>) -> Result<Vec<Value>, Wrong> {
    let name = parameter.name;
    let shape = || {
        format!("{name}: a range is {{ from = A, to = B, step = C }} or {{ from = A, to = B, times = C }}")
    };
    let fail = |what: String| (span.clone(), what);
    if !matches!(parameter.kind, Kind::Bytes | Kind::Whole | Kind::Share) {
        return Err(fail(format!("{name}: no range, but {}, or a list of that", parameter.kind.expected())));
    }
    let known = ["from", "to", "step", "times"];
    if let Some((key, _)) = table.iter().find(|(key, _)| !known.contains(&key.get_ref().as_ref())) {
        return Err((key.span(), shape()));
    }
    let end =
        |key: &str| -> Result<Value, Wrong> { one(parameter, table.get(key).ok_or_else(|| fail(shape()))?) };
    let (from, to) = (end("from")?, end("to")?);
    let grows = |by: &Spanned<DeValue<'_>>| -> Option<f64> {
        match by.get_ref() {
            DeValue::Integer(whole) => {
                u64::from_str_radix(whole.as_str(), whole.radix()).ok().map(|whole| whole as f64)
            }
            DeValue::Float(number) => number.as_str().parse().ok(),
            DeValue::String(text) => parameter.kind.of_text(text)?.number(),
            _ => None,
        }
    };
    let (by, adds) = match (table.get("step"), table.get("times")) {
        (Some(step), None) => (grows(step), true),
        (None, Some(times)) => (grows(times), false),
        _ => return Err(fail(shape())),
    };
    let least = if adds { 0.0 } else { 1.0 };
    let by = by.filter(|by| by.is_finite() && *by > least);
    let by = by.ok_or_else(|| fail(format!("{name}: step is above 0, times above 1")))?;
    let (low, high) = (from.number().unwrap_or(0.0), to.number().unwrap_or(0.0));
    if low > high || (low == 0.0 && !adds) {
        return Err(fail(format!("{name}: from {from} to {to} is no range")));
    }
    let mut found = Vec::new();
    // Each value from the first, not from the one before: rounding does not add up. No powf, which differs between machines.
    let mut power = 1.0;
    for count in 0..=VALUES_MAX {
        let value = if adds { low + count as f64 * by } else { low * power };
        power *= by;
        if value > high * (1.0 + 1e-12) {
            break;
        }
        found.push(match parameter.kind {
            Kind::Share => Value::Real(value.min(high)),
            _ => Value::Whole(value.round() as u64),
        });
    }
    Ok(found)
}
