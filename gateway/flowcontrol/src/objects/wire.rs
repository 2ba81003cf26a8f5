//! How the API reads and writes its objects.
//!
//! Kubernetes' decoder has manners of its own: unknown members are ignored, `null` means the same as
//! absent wherever it stands (also as a list's element), an integer must be written as one and fit its
//! 32 or 64 bits, and a struct is a JSON object and nothing else (serde alone would take a list as well).
//! What is refused here, the API refuses before validating it.

/// Declares API structs: plain values, all members public and empty by default.
///
/// With the feature `serde` they are read and written in camel case; empty members are not written.
macro_rules! objects {
    ($(
        $(#[$about:meta])*
        pub struct $name:ident {
            $( $(#[$note:meta])* pub $member:ident: $kind:ty, )*
        }
    )*) => {$(
        $(#[$about])*
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        #[cfg_attr(
            feature = "serde",
            derive(serde::Serialize, serde::Deserialize),
            serde(default, rename_all = "camelCase", remote = "Self")
        )]
        pub struct $name {$(
            $(#[$note])*
            #[cfg_attr(
                feature = "serde",
                serde(
                    deserialize_with = "crate::objects::wire::Member::read",
                    skip_serializing_if = "crate::objects::wire::is_empty"
                )
            )]
            pub $member: $kind,
        )*}

        #[cfg(feature = "serde")]
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                $name::serialize(self, to)
            }
        }

        #[cfg(feature = "serde")]
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                struct OnlyMap;
                impl<'de> serde::de::Visitor<'de> for OnlyMap {
                    type Value = $name;
                    fn expecting(&self, to: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                        to.write_str("an object")
                    }
                    fn visit_map<A: serde::de::MapAccess<'de>>(self, map: A) -> Result<$name, A::Error> {
                        $name::deserialize(serde::de::value::MapAccessDeserializer::new(map))
                    }
                }
                from.deserialize_map(OnlyMap)
            }
        }

        #[cfg(feature = "serde")]
        crate::objects::wire::members!($name, Option<$name>);
    )*};
}

#[cfg(feature = "serde")]
pub(super) use with_serde::{Member, is_empty, members, null_or};

#[cfg(feature = "serde")]
mod with_serde {
    use alloc::collections::BTreeMap;
    use alloc::string::String;
    use alloc::vec::Vec;

    use serde::{Deserialize, Deserializer};

    use crate::objects::Time;

    /// What can be a member of an API struct, or an element of a list in it.
    pub(crate) trait Member<'de>: Sized {
        /// Reads it; `null` is the empty value.
        fn read<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error>;
    }

    /// The empty value for `null`, else what a `T` reads.
    pub(crate) fn null_or<'de, T: Deserialize<'de> + Default, D: Deserializer<'de>>(
        from: D,
    ) -> Result<T, D::Error> {
        Option::deserialize(from).map(Option::unwrap_or_default)
    }

    /// Whether a member need not be written.
    pub(crate) fn is_empty<T: Default + PartialEq>(member: &T) -> bool {
        *member == T::default()
    }

    /// Members that serde reads right but for `null`.
    macro_rules! members {
        ($($kind:ty),*) => {$(
            impl<'de> crate::objects::wire::Member<'de> for $kind {
                fn read<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                    crate::objects::wire::null_or(from)
                }
            }
        )*};
    }
    pub(crate) use members;
    members!(bool, i32, i64, String, Option<i32>, Option<Time>);

    impl<'de, T: Member<'de>> Member<'de> for Vec<T> {
        fn read<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
            let elements: Vec<Element<T>> = null_or(from)?;
            Ok(elements.into_iter().map(|element| element.0).collect())
        }
    }

    impl<'de> Member<'de> for BTreeMap<String, String> {
        fn read<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
            let entries: BTreeMap<String, Element<String>> = null_or(from)?;
            Ok(entries.into_iter().map(|(key, value)| (key, value.0)).collect())
        }
    }

    /// An element of a list or map, read as [`Member`] says.
    struct Element<T>(T);

    impl<'de, T: Member<'de>> Deserialize<'de> for Element<T> {
        fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
            T::read(from).map(Self)
        }
    }
}
