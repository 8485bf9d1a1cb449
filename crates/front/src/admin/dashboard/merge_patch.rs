//! Differences of JSON values as merge patches (RFC 7396): what a dashboard gets each second.

use serde_json::{Map, Value};

/// The merge patch from one value to another, which has no `null`; none if they are equal.
pub fn merge_patch(from: &Value, to: &Value) -> Option<Value> {
    if from == to {
        return None;
    }
    let (Value::Object(from), Value::Object(to)) = (from, to) else {
        return Some(to.clone());
    };
    let mut patch = Map::new();
    for (name, value) in to {
        let change = match from.get(name) {
            Some(before) => merge_patch(before, value),
            None => Some(value.clone()),
        };
        if let Some(change) = change {
            patch.insert(name.clone(), change);
        }
    }
    for name in from.keys().filter(|name| !to.contains_key(*name)) {
        patch.insert(name.clone(), Value::Null);
    }
    Some(Value::Object(patch))
}

/// Removes each member of an object that is `null`: in a patch that means another thing.
pub fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|_, member| !member.is_null());
            members.values_mut().for_each(without_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(without_nulls),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// RFC 7396 §2.
    fn apply(target: &mut Value, patch: &Value) {
        let Value::Object(changes) = patch else {
            *target = patch.clone();
            return;
        };
        if !target.is_object() {
            *target = json!({});
        }
        for (name, change) in changes {
            match change {
                Value::Null => drop(target.as_object_mut().unwrap().remove(name)),
                change => apply(&mut target[name.as_str()], change),
            }
        }
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![any::<u8>().prop_map(Value::from), "[a-c]".prop_map(Value::from)];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::hash_map("[a-d]", inner, 0..4)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    #[test]
    fn a_patch_has_what_changed_and_nothing_else() {
        let before = json!({"a": {"x": 1, "y": [1]}, "b": 1, "c": 2});
        let after = json!({"a": {"x": 2, "y": [1]}, "b": 1, "d": "new"});
        let patch = json!({"a": {"x": 2}, "c": null, "d": "new"});
        assert_eq!(merge_patch(&before, &after), Some(patch));
        assert_eq!(merge_patch(&before, &before), None);
        let mut value = json!({"a": null, "b": [{"c": null}]});
        without_nulls(&mut value);
        assert_eq!(value, json!({"b": [{}]}));
    }

    proptest! {
        #[test]
        fn a_patch_leads_from_one_value_to_the_other(
            before in any_value(), after in any_value()
        ) {
            let mut value = json!({ "v": before });
            let after = json!({ "v": after });
            if let Some(patch) = merge_patch(&value.clone(), &after) {
                apply(&mut value, &patch);
            }
            // A patch cannot replace a scalar by an object without its members; the same here.
            prop_assert_eq!(value, after);
        }
    }
}
