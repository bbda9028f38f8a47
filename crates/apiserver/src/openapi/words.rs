//! What fields mean that every object has, for `kubectl explain`. Of the others nothing is said: upstream's texts are larger
//! than all the rest of the description.

/// Of `apiVersion`.
pub(super) const API_VERSION: &str =
    "APIVersion defines the group and version of the form in which this object is written.";
/// Of `kind`.
pub(super) const KIND: &str = "Kind is the name of the sort of thing that this object is, in CamelCase.";
/// Of `metadata`.
pub(super) const METADATA: &str = "Standard object's metadata: its name, labels, owners and times.";
/// Of a list's `metadata`.
pub(super) const LIST_METADATA: &str =
    "Standard list metadata: its revision, and where its next page begins.";

type Words = &'static [(&'static str, &'static str)];

const OBJECT_META: Words = &[
    ("annotations", "Annotations are notes of tools, by key; nothing is selected by them."),
    (
        "creationTimestamp",
        "CreationTimestamp is a timestamp of the server's: when the object was made. Clients cannot set it.",
    ),
    (
        "deletionGracePeriodSeconds",
        "Seconds that the object has to end by itself once its deletion was asked for.",
    ),
    (
        "deletionTimestamp",
        "DeletionTimestamp is when the object is to be gone. Set by the server when its deletion is asked for.",
    ),
    (
        "finalizers",
        "Names of those who have something to do before the object may go. The object stays until the list is empty.",
    ),
    ("generateName", "The beginning of a name that the server completes, used if no name is given."),
    ("generation", "Counts the changes of what is wanted of the object. Set by the server."),
    ("labels", "Labels are keys and values by which objects are found and selected."),
    (
        "managedFields",
        "Who set which fields, in which form, and when. Kept by the server for server-side apply.",
    ),
    ("name", "Name tells the object from others of its kind in its namespace. It cannot be changed."),
    ("namespace", "Namespace in which the name is unique. Empty for objects outside of namespaces."),
    ("ownerReferences", "The objects that this one depends on. It is removed when none of them is left."),
    (
        "resourceVersion",
        "The object's revision, which changes with every write. Clients compare it and pass it back, no more.",
    ),
    ("selfLink", "Not set any more."),
    (
        "uid",
        "UID tells this object from all others, also from those that had its name before or will. Set by the server.",
    ),
];

const LIST_META: Words = &[
    ("continue", "A token with which the next page of the list is asked for. Empty on the last page."),
    ("remainingItemCount", "How many objects follow the page, if the server can say so."),
    ("resourceVersion", "The revision at which the list was read; a watch may begin there."),
    ("selfLink", "Not set any more."),
    ("shardInfo", "Which part of all objects the list shows, if it was asked for a part."),
];

const OWNER_REFERENCE: Words = &[
    ("apiVersion", "Group and version of the owner."),
    ("blockOwnerDeletion", "Whether the owner, deleted in the foreground, stays until this object is gone."),
    ("controller", "Whether the owner is the one that manages this object."),
    ("kind", "Kind of the owner."),
    ("name", "Name of the owner."),
    ("uid", "UID of the owner."),
];

const MANAGED_FIELDS_ENTRY: Words = &[
    ("apiVersion", "Group and version in which the fields are told."),
    ("fieldsType", "The form of the fields; FieldsV1 is the only one."),
    ("fieldsV1", "The fields, as a tree of their names."),
    ("manager", "Who set them."),
    ("operation", "Whether by Apply or by Update."),
    ("subresource", "The part of the object through which they were set."),
    ("time", "When the set of fields last changed."),
];

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";

fn words(ty: &str) -> Words {
    match ty.strip_prefix(META) {
        Some("ObjectMeta") => OBJECT_META,
        Some("ListMeta") => LIST_META,
        Some("OwnerReference") => OWNER_REFERENCE,
        Some("ManagedFieldsEntry") => MANAGED_FIELDS_ENTRY,
        _ => &[],
    }
}

/// What a type is.
pub(super) fn of_type(ty: &str) -> Option<&'static str> {
    Some(match ty.strip_prefix(META)? {
        "ObjectMeta" => {
            "ObjectMeta is what every object has, whatever its kind: who it is, whose, and since when."
        }
        "ListMeta" => "ListMeta is what every list has: its revision, and where its next page begins.",
        "OwnerReference" => "OwnerReference names an object that another depends on.",
        "ManagedFieldsEntry" => "ManagedFieldsEntry says which fields somebody set, and when.",
        _ => return None,
    })
}

/// What a field is; `whole` if its type is an object or a list of its own.
pub(super) fn of_field(ty: &str, field: &str, whole: bool) -> Option<&'static str> {
    let known = words(ty).iter().find(|(name, _)| *name == field).map(|(_, text)| *text);
    known.or(match field {
        "apiVersion" if whole => Some(API_VERSION),
        "kind" if whole => Some(KIND),
        "metadata" if whole => Some(METADATA),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use trine_objects::schema;

    #[test]
    fn every_field_that_all_objects_have_has_its_words() {
        for short in ["ObjectMeta", "ListMeta", "OwnerReference", "ManagedFieldsEntry"] {
            let ty = schema::named(&format!("~meta.v1.{short}")).unwrap();
            let name = ty.name();
            assert!(of_type(&name).is_some());
            for field in &ty.fields {
                assert!(of_field(&name, field.name, false).is_some(), "{name}.{}", field.name);
            }
            assert_eq!(words(&name).len(), ty.fields.len());
        }
    }
}
