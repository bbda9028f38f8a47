//! Functions that rewritten expressions need, and those that must not take more than there is.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use kube_cel::cel::objects::{Key, Map, OptionalValue};
use kube_cel::cel::{Context, ExecutionError, FunctionContext, ResolveResult, Value as Cel};

/// The keys of a map, the places of a list.
pub(crate) const KEYS: &str = "@keys";
/// A map with one more entry.
pub(crate) const PUT: &str = "@put";
/// Two maps as one.
pub(crate) const MERGE: &str = "@merge";
/// A list in the order of other values, one for each item.
pub(crate) const SORT: &str = "@sort";
/// What an optional value becomes, if it is there, as an optional value again: the value, a name for it, an expression.
pub(crate) const OPT_MAP: &str = "@optMap";
/// The same where the expression gives an optional value itself.
pub(crate) const OPT_FLAT_MAP: &str = "@optFlatMap";
/// What a device has of a domain.
pub(crate) const DOMAIN: &str = "@domain";
/// The longest list that is made of nothing. Upstream's costs allow about as much.
const LONGEST_RANGE: i64 = 100_000;

/// Adds the functions.
pub(crate) fn register(context: &mut Context<'_>) {
    context.add_function(KEYS, |of: Cel| -> ResolveResult {
        match of {
            Cel::List(list) => (0..list.len()).map(place).collect::<Result<Vec<_>, _>>().map(listed),
            Cel::Map(map) => Ok(listed(map.map.keys().map(Cel::from).collect())),
            _ => Err(ExecutionError::NoSuchOverload),
        }
    });
    context.add_function(PUT, |map: Cel, key: Cel, value: Cel| -> ResolveResult {
        let key: Key = key.try_into().map_err(ExecutionError::UnsupportedKeyType)?;
        with(map, [(key, value)])
    });
    context.add_function(MERGE, |map: Cel, more: Cel| -> ResolveResult {
        let Cel::Map(more) = more else { return Err(ExecutionError::NoSuchOverload) };
        with(map, more.map.iter().map(|(k, v)| (k.clone(), v.clone())))
    });
    context.add_function(DOMAIN, |map: Cel, domain: Cel| -> ResolveResult {
        let Cel::Map(map) = map else { return Err(ExecutionError::NoSuchOverload) };
        let domain: Key = domain.try_into().map_err(ExecutionError::UnsupportedKeyType)?;
        Ok(map.map.get(&domain).cloned().unwrap_or_else(|| Cel::Map(Map { map: Arc::default() })))
    });
    context.add_function(SORT, |list: Arc<Vec<Cel>>, keys: Arc<Vec<Cel>>| -> ResolveResult {
        let mut order: Vec<usize> = (0..list.len().min(keys.len())).collect();
        if keys.windows(2).any(|pair| pair[0].partial_cmp(&pair[1]).is_none()) {
            return Err(ExecutionError::NoSuchOverload);
        }
        order.sort_by(|a, b| keys[*a].partial_cmp(&keys[*b]).unwrap_or(Ordering::Equal));
        Ok(listed(order.into_iter().map(|i| list[i].clone()).collect()))
    });
    context.add_function(OPT_MAP, |within: &FunctionContext<'_, '_>| -> ResolveResult {
        let made = mapped(within)?;
        Ok(optional(made.map_or_else(OptionalValue::none, OptionalValue::of)))
    });
    context.add_function(OPT_FLAT_MAP, |within: &FunctionContext<'_, '_>| -> ResolveResult {
        Ok(mapped(within)?.unwrap_or_else(|| optional(OptionalValue::none())))
    });
    context.add_function("lists.range", |count: i64| -> ResolveResult {
        if count > LONGEST_RANGE {
            let why = "operation cancelled: actual cost limit exceeded";
            return Err(ExecutionError::function_error("lists.range", why));
        }
        Ok(listed((0..count).map(Cel::Int).collect()))
    });
}

/// What the expression gives for the value that is there. The interpreter forgets that a value is optional when it gives it a name,
/// so that this cannot be written with other macros.
fn mapped(within: &FunctionContext<'_, '_>) -> Result<Option<Cel>, ExecutionError> {
    let [value, name, body] = within.args else { return Err(ExecutionError::NoSuchOverload) };
    let (value, name) = (Cel::resolve(value, within.ptx)?, Cel::resolve(name, within.ptx)?);
    let (Cel::Opaque(opaque), Cel::String(name)) = (value, name) else {
        return Err(ExecutionError::NoSuchOverload);
    };
    let there = opaque.downcast_ref::<OptionalValue>().ok_or(ExecutionError::NoSuchOverload)?;
    let Some(there) = there.value() else { return Ok(None) };
    let mut inner = within.ptx.new_inner_scope();
    inner.add_variable_from_value(name.as_str(), there.clone());
    Cel::resolve(body, &inner).map(Some)
}

fn optional(value: OptionalValue) -> Cel {
    Cel::Opaque(Arc::new(value))
}

fn place(at: usize) -> ResolveResult {
    i64::try_from(at).map(Cel::Int).map_err(|_| ExecutionError::NoSuchOverload)
}

fn listed(items: Vec<Cel>) -> Cel {
    Cel::List(Arc::new(items))
}

fn with(map: Cel, more: impl IntoIterator<Item = (Key, Cel)>) -> ResolveResult {
    let Cel::Map(map) = map else { return Err(ExecutionError::NoSuchOverload) };
    let mut entries: HashMap<Key, Cel> = (*map.map).clone();
    for (key, value) in more {
        if entries.insert(key, value).is_some() {
            return Err(ExecutionError::function_error("insert", "insert failed: key already exists"));
        }
    }
    Ok(Cel::Map(Map { map: Arc::new(entries) }))
}
