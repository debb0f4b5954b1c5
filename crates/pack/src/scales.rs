//! The ways to choose scales.

use serde::{Deserialize, Serialize};

/// How the quantizer chooses the scale of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScaleSearch {
    /// The row's largest magnitude maps to the largest code: `amax / 448`.
    #[default]
    Amax,
    /// The scale with the least squared error, of a fixed grid of scales around `amax / 448`.
    Mse,
}

impl ScaleSearch {
    /// Every way.
    pub const ALL: [ScaleSearch; 2] = [ScaleSearch::Amax, ScaleSearch::Mse];

    /// The name on the command line and in the header.
    pub fn name(self) -> &'static str {
        match self {
            ScaleSearch::Amax => "amax",
            ScaleSearch::Mse => "mse",
        }
    }

    /// Returns the way with this name.
    pub fn from_name(name: &str) -> Option<ScaleSearch> {
        ScaleSearch::ALL.into_iter().find(|search| search.name() == name)
    }

    /// Returns whether this is the default, which a header omits, so that packs from before there
    /// was a choice stay valid.
    pub(crate) fn is_amax(&self) -> bool {
        *self == ScaleSearch::Amax
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back() {
        for search in ScaleSearch::ALL {
            assert_eq!(ScaleSearch::from_name(search.name()), Some(search));
            assert_eq!(serde_json::to_value(search).unwrap(), search.name());
        }
        assert_eq!(ScaleSearch::from_name("max"), None);
    }
}
