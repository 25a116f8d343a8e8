//! What domain 0 asks of a cpupool's scheduler: `include/punctual_op.h`, as bytes.

use alloc::string::String;

use crate::abi::{Account, Params, Processors, Text};

/// Changes with the contract.
pub const VERSION: u32 = 2;
/// Bytes of `struct punctual_op`.
pub const BYTES: usize = 944;

/// `enum punctual_op_what`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum What {
    /// The policy, and how many units there are.
    GetPool = 0,
    /// Another policy.
    SetPool = 1,
    /// Parameters and account of a vCPU.
    GetUnit = 2,
    /// Other parameters.
    SetUnit = 3,
    /// The policy panics at its next decision.
    Break = 4,
}

/// `struct punctual_op`.
#[derive(Clone, Debug)]
pub struct Op {
    /// What is asked.
    pub what: What,
    /// The domain's number.
    pub domain: u32,
    /// The vCPU's.
    pub vcpu: u32,
    /// Units that the pool has.
    pub units: u32,
    /// Its policy panicked: round robin.
    pub parked: bool,
    /// Of the vCPU.
    pub params: Params,
    /// Of the vCPU.
    pub account: Account,
    /// The policy's name.
    pub policy: String,
    /// Its options, as `name=value,name=value`.
    pub options: String,
    /// Why not.
    pub why: String,
    /// When it was answered, by Xen's clock; the periods of a new policy begin then.
    pub now_ns: u64,
}

const PARAMS: usize = 24;
const AFFINITY: usize = PARAMS + 48;
const ACCOUNT: usize = AFFINITY + 64;
const POLICY: usize = ACCOUNT + 32;
const TEXT: usize = 256;
const NOW: usize = POLICY + 3 * TEXT;

impl Op {
    /// A question without details.
    pub fn new(what: What) -> Op {
        Op {
            what,
            domain: 0,
            vcpu: 0,
            units: 0,
            parked: false,
            params: Params::NONE_GIVEN,
            account: Account { left_ns: 0, deadline_ns: 0, exhaustions: 0, replenishments: 0 },
            policy: String::new(),
            options: String::new(),
            why: String::new(),
            now_ns: 0,
        }
    }

    /// As C has it; texts that are too long are cut.
    pub fn to_bytes(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        let words = [VERSION, self.what as u32, self.domain, self.vcpu, self.units, self.parked.into()];
        words.iter().enumerate().for_each(|(index, word)| put(index * 4, &word.to_le_bytes()));
        let params = &self.params;
        put(PARAMS, &params.given.to_le_bytes());
        put(PARAMS + 4, &params.priority.to_le_bytes());
        put(PARAMS + 8, &params.budget_ns.to_le_bytes());
        put(PARAMS + 16, &params.period_ns.to_le_bytes());
        put(PARAMS + 24, &params.deadline_ns.to_le_bytes());
        let words = [params.weight, params.cap_percent, params.extratime, params.best_effort];
        words.iter().enumerate().for_each(|(index, word)| put(PARAMS + 32 + index * 4, &word.to_le_bytes()));
        let words = &params.affinity.words;
        words.iter().enumerate().for_each(|(index, word)| put(AFFINITY + 8 * index, &word.to_le_bytes()));
        for (index, text) in [&self.policy, &self.options, &self.why].into_iter().enumerate() {
            put(POLICY + TEXT * index, Text::of(text).as_str().unwrap_or("").as_bytes());
        }
        put(NOW, &self.now_ns.to_le_bytes());
        bytes
    }

    /// Takes what an answer filled in.
    pub fn answer(&mut self, bytes: &[u8; BYTES]) {
        let word = |at: usize| u32::from_le_bytes(core::array::from_fn(|index| bytes[at + index]));
        let long = |at: usize| u64::from_le_bytes(core::array::from_fn(|index| bytes[at + index]));
        let text = |at: usize| {
            let text = &bytes[at..at + TEXT];
            let end = text.iter().position(|byte| *byte == 0).unwrap_or(TEXT);
            String::from_utf8_lossy(&text[..end]).into_owned()
        };
        (self.units, self.parked) = (word(16), word(20) != 0);
        self.params = Params {
            given: word(PARAMS),
            priority: word(PARAMS + 4),
            budget_ns: long(PARAMS + 8),
            period_ns: long(PARAMS + 16),
            deadline_ns: long(PARAMS + 24),
            weight: word(PARAMS + 32),
            cap_percent: word(PARAMS + 36),
            extratime: word(PARAMS + 40),
            best_effort: word(PARAMS + 44),
            affinity: Processors { words: core::array::from_fn(|index| long(AFFINITY + 8 * index)) },
        };
        self.account = Account {
            left_ns: long(ACCOUNT),
            deadline_ns: long(ACCOUNT + 8),
            exhaustions: long(ACCOUNT + 16),
            replenishments: long(ACCOUNT + 24),
        };
        self.policy = text(POLICY);
        self.options = text(POLICY + TEXT);
        self.why = text(POLICY + 2 * TEXT);
        self.now_ns = long(NOW);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_again() {
        let mut op = Op::new(What::SetUnit);
        (op.domain, op.vcpu, op.units, op.parked, op.now_ns) = (7, 3, 12, true, 1 << 50);
        op.params = Params {
            given: 0x1ff,
            priority: 2,
            budget_ns: 3,
            period_ns: 1 << 40,
            deadline_ns: 5,
            weight: 6,
            cap_percent: 7,
            extratime: 1,
            best_effort: 1,
            affinity: Processors { words: [1, 0, 0, 0, 0, 0, 0, 1 << 63] },
        };
        (op.policy, op.options, op.why) = ("rtds".into(), "a=b".into(), "so".into());
        let bytes = op.to_bytes();
        let mut again = Op::new(What::SetUnit);
        again.answer(&bytes);
        (again.domain, again.vcpu) = (7, 3);
        assert_eq!(again.to_bytes(), bytes);
    }
}
