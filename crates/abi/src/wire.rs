//! How a fact is declared once for two languages: enums, structs, and numbers that follow from
//! others. Each macro gives the Rust form and a list from which [`crate::generate`] writes the
//! other form.

/// Declares an enum whose discriminants and names are part of the contract between languages.
macro_rules! wire_enum {
    (
        $(#[$doc:meta])*
        $name:ident { $($(#[$vdoc:meta])* $variant:ident = $id:literal, $text:literal;)+ }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum $name { $($(#[$vdoc])* $variant = $id,)+ }

        impl $name {
            /// Every value, in id order: the id of `ALL[i]` is `i`.
            pub const ALL: &'static [$name] = &[$($name::$variant,)+];

            /// The name used in every file, table and chart.
            pub const fn name(self) -> &'static str {
                match self { $($name::$variant => $text,)+ }
            }

            /// The value with this id, or `None` for an id this version does not know.
            pub fn from_id(id: u8) -> Option<$name> {
                Self::ALL.get(usize::from(id)).copied()
            }

            /// The value with this name.
            pub fn from_name(name: &str) -> Option<$name> {
                Self::ALL.iter().copied().find(|value| value.name() == name)
            }
        }
    };
}

/// Declares a struct whose layout is part of the contract: the Rust form here, the CUDA form in
/// the generated header, offsets asserted on both sides. `@` stands for the field's name. Bytes and
/// struct become each other by `zerocopy`, which refuses a struct with padding.
macro_rules! wire_struct {
    (
        $(#[$doc:meta])*
        $name:ident { $($(#[$fdoc:meta])* $field:ident: $rust:ty, $cuda:literal;)+ }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq)]
        #[derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable)]
        #[derive(zerocopy::KnownLayout)]
        #[repr(C)]
        pub struct $name { $($(#[$fdoc])* pub $field: $rust,)+ }

        impl $name {
            /// Name, CUDA declaration and offset of every field.
            pub const FIELDS: &'static [(&'static str, &'static str, usize)] = &[
                $((stringify!($field), $cuda, std::mem::offset_of!($name, $field)),)+
            ];
        }
    };
}

/// A number's name and what the generated header says of it.
#[derive(Clone, Copy, Debug)]
pub struct Named {
    /// The Rust field; the CUDA constant has the same name in capitals.
    pub name: &'static str,
    /// Lines of its comment.
    pub doc: &'static [&'static str],
}

/// Declares the numbers that a kernel is compiled for: a struct of `usize`, each of which reaches
/// the sources as a define (`hidden` is `ML_HIDDEN`) and a constant (`shape::HIDDEN`).
macro_rules! wire_inputs {
    (
        $(#[$doc:meta])*
        $name:ident { $($(#[doc = $fdoc:literal])* $field:ident;)+ }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub struct $name { $($(#[doc = $fdoc])* pub $field: usize,)+ }

        impl $name {
            /// Every field, in order.
            pub const FIELDS: &'static [$crate::wire::Named] = &[
                $($crate::wire::Named { name: stringify!($field), doc: &[$($fdoc),*] },)+
            ];

            /// The define of each field, and its value.
            pub fn defines(&self) -> Vec<(String, usize)> {
                let values = [$(self.$field,)+];
                let names = Self::FIELDS.iter().map(|field| $crate::wire::define(field.name));
                names.zip(values).collect()
            }
        }
    };
}

/// The define that carries an input into the kernel's sources.
pub fn define(field: &str) -> String {
    format!("ML_{}", field.to_uppercase())
}

/// How a number is typed in CUDA. On the host every number is a `usize`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(non_camel_case_types, reason = "the names are CUDA's")]
pub enum Kind {
    /// `int`.
    int,
    /// `unsigned int`.
    u32,
    /// `unsigned long long`: every operand is widened first.
    u64,
}

impl Kind {
    /// The type's name.
    pub const fn cuda(self) -> &'static str {
        match self {
            Kind::int => "int",
            Kind::u32 => "u32",
            Kind::u64 => "u64",
        }
    }
}

/// A number that follows from others, by an expression that both languages read.
#[derive(Clone, Copy, Debug)]
pub struct Derived {
    /// Name and comment.
    pub named: Named,
    /// Type in CUDA.
    pub kind: Kind,
    /// The expression, in Rust's names.
    pub expression: &'static str,
}

/// Declares numbers that are fixed, or follow from inputs and from one another. The expressions are
/// evaluated in Rust, and written into the generated header with their names in capitals.
macro_rules! wire_sizes {
    (
        $(#[$doc:meta])*
        $name:ident of $($input:ident: $from:ident { $($field:ident),+ }),+;
        fixed { $($(#[doc = $cdoc:literal])* $constant:ident = $number:expr;)+ }
        derived { $($(#[doc = $vdoc:literal])* $value:ident: $kind:ident = $expression:expr;)+ }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name {
            $($(#[doc = $cdoc])* pub $constant: usize,)+
            $($(#[doc = $vdoc])* pub $value: usize,)+
        }

        impl $name {
            /// The numbers for these inputs.
            ///
            /// # Panics
            /// An input that others are divided by is 0.
            #[allow(clippy::manual_div_ceil, reason = "CUDA reads the same expressions")]
            pub const fn of($($input: &$from),+) -> $name {
                $(let $from { $($field,)+ .. } = *$input;)+
                $(let $constant: usize = $number;)+
                $(let $value: usize = $expression;)+
                $name { $($constant,)+ $($value,)+ }
            }

            /// The fixed numbers.
            pub const FIXED: &'static [($crate::wire::Named, usize)] = &[
                $((
                    $crate::wire::Named { name: stringify!($constant), doc: &[$($cdoc),*] },
                    $number,
                ),)+
            ];

            /// The numbers that follow from others, in order.
            pub const DERIVED: &'static [$crate::wire::Derived] = &[
                $($crate::wire::Derived {
                    named: $crate::wire::Named { name: stringify!($value), doc: &[$($vdoc),*] },
                    kind: $crate::wire::Kind::$kind,
                    expression: stringify!($expression),
                },)+
            ];
        }
    };
}

/// A rule: a function of numbers, by an expression that both languages read.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Name (the same in both languages) and comment.
    pub named: Named,
    /// Type of the arguments and of the result in CUDA.
    pub kind: Kind,
    /// Names of the arguments.
    pub arguments: &'static [&'static str],
    /// The expression.
    pub expression: &'static str,
}

/// Declares rules: who owns what, and where it lies.
macro_rules! wire_rules {
    ($(
        $(#[doc = $doc:literal])*
        $kind:ident $name:ident($($argument:ident),+) = $expression:expr;
    )+) => {
        $(
            $(#[doc = $doc])*
            #[allow(clippy::manual_div_ceil, reason = "CUDA reads the same expression")]
            pub const fn $name($($argument: usize),+) -> usize { $expression }
        )+

        /// Every rule.
        pub const RULES: &[$crate::wire::Rule] = &[
            $($crate::wire::Rule {
                named: $crate::wire::Named { name: stringify!($name), doc: &[$($doc),*] },
                kind: $crate::wire::Kind::$kind,
                arguments: &[$(stringify!($argument)),+],
                expression: stringify!($expression),
            },)+
        ];
    };
}
