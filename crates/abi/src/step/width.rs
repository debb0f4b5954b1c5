//! A number of the step by name, for tables that both languages have.

use super::Step;

/// One of the step's numbers: its value on the host, and its constant in CUDA.
#[derive(Clone, Copy)]
pub struct Width {
    name: &'static str,
    of: fn(&Step) -> usize,
}

impl Width {
    pub(super) const fn new(name: &'static str, of: fn(&Step) -> usize) -> Width {
        Width { name, of }
    }

    /// The value.
    pub fn of(self, step: &Step) -> usize {
        (self.of)(step)
    }

    /// The expression in CUDA: a constant of the namespace `shape`, or a number.
    pub fn cuda(self) -> String {
        self.name.to_uppercase()
    }
}

impl std::fmt::Debug for Width {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(self.name)
    }
}

/// A dimension of the model.
macro_rules! dim {
    ($field:ident) => {
        $crate::step::Width::new(stringify!($field), |step| step.dims.$field)
    };
}

/// A number of the row.
macro_rules! tuning {
    ($field:ident) => {
        $crate::step::Width::new(stringify!($field), |step| step.tuning.$field)
    };
}

/// A size that follows.
macro_rules! size {
    ($field:ident) => {
        $crate::step::Width::new(stringify!($field), |step| step.sizes.$field)
    };
}

/// A plain number.
macro_rules! number {
    ($number:literal) => {
        $crate::step::Width::new(stringify!($number), |_| $number)
    };
}
