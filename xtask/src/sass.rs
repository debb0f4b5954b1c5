//! Machine code as nvdisasm prints it.

use std::collections::HashMap;

/// How often each instruction occurs in a cubin.
#[derive(Debug, Default)]
pub struct Sass {
    /// The number of instructions.
    pub instructions: usize,
    mnemonics: HashMap<String, usize>,
}

impl Sass {
    /// Reads what `nvdisasm --print-code` prints.
    pub fn parse(text: &str) -> Sass {
        let mut sass = Sass::default();
        for mnemonic in text.lines().filter_map(mnemonic) {
            sass.instructions += 1;
            *sass.mnemonics.entry(mnemonic.into()).or_default() += 1;
        }
        sass
    }

    /// How often the instruction occurs, with any suffixes.
    pub fn count(&self, mnemonic: &str) -> usize {
        self.mnemonics.get(mnemonic).copied().unwrap_or(0)
    }
}

/// The instruction on a line like `/*0070*/ @!P0 LDG.E.64 R2, desc[UR4][R2.64] ;`.
fn mnemonic(line: &str) -> Option<&str> {
    let (offset, code) = line.trim().strip_prefix("/*")?.split_once("*/")?;
    u64::from_str_radix(offset, 16).ok()?;
    let mut words = code.split_whitespace().filter(|word| *word != "{" && !word.starts_with('@'));
    let name = words.next()?.split(['.', ';']).next()?;
    let plain = name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit());
    (plain && !name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_counted_by_name() {
        let text = "\t.headerflags\t@\"EF_CUDA_TEXMODE_UNIFIED\"\n.text.monolith_step:\n\
            \x20       /*0000*/                   LDC R1, c[0x0][0x28] ;\n\
            \x20       /*0010*/               @!P0 LDG.E.64 R2, desc[UR4][R2.64] ;\n\
            .L_x_3:\n\
            \x20       /*0020*/                   HMMA.16816.F32.BF16 R4, R8, R12, R4 ;\n\
            \x20       /*0030*/              { @P1 LDG.E R2, desc[UR4][R2.64] ;\n\
            \x20       /*0040*/                   EXIT ;\n\
            \x20 /* 0x000000000000794d */\n";
        let sass = Sass::parse(text);
        assert_eq!(sass.instructions, 5);
        let counts = ["LDG", "HMMA", "EXIT", "LDC", "LDL"].map(|name| sass.count(name));
        assert_eq!(counts, [2, 1, 1, 1, 0]);
    }
}
