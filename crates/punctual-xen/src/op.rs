//! The sysctl of Punctual's scheduler in Xen: `include/punctual_op.h` as bytes.

use alloc::string::String;

use crate::abi::{Account, Params, Processors, Text};

/// Version of the contract.
pub const VERSION: u32 = 3;
/// Bytes of `struct punctual_op`.
pub const BYTES: usize = 952;

/// `enum punctual_op_what`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum What {
    /// Returns the policy and the number of units.
    GetPool = 0,
    /// Replaces the policy.
    SetPool = 1,
    /// Returns parameters and account of a vCPU.
    GetUnit = 2,
    /// Sets parameters of a vCPU.
    SetUnit = 3,
    /// Debug builds of Xen: the policy panics at its next decision.
    Break = 4,
}

/// `struct punctual_op`.
#[derive(Clone, Debug)]
pub struct Op {
    /// The operation.
    pub what: What,
    /// ID of the domain.
    pub domain: u32,
    /// ID of the vCPU.
    pub vcpu: u32,
    /// Number of units in the pool.
    pub units: u32,
    /// The policy panicked, and units run round robin.
    pub failed: bool,
    /// Parameters of the vCPU.
    pub params: Params,
    /// Account of the vCPU.
    pub account: Account,
    /// Name of the policy.
    pub policy: String,
    /// Its options, as `name=value,name=value`.
    pub options: String,
    /// Why the operation failed.
    pub why: String,
    /// Xen's time of the answer; the periods of a new policy begin then.
    pub now_ns: u64,
}

const PARAMS: usize = 24;
const AFFINITY: usize = PARAMS + 48;
/// Behind the affinity there is the VM, which an operation does not set.
const ACCOUNT: usize = AFFINITY + 64 + 8;
const POLICY: usize = ACCOUNT + 32;
const TEXT: usize = 256;
const NOW: usize = POLICY + 3 * TEXT;

impl Op {
    /// An operation without details.
    pub fn new(what: What) -> Op {
        Op {
            what,
            domain: 0,
            vcpu: 0,
            units: 0,
            failed: false,
            params: Params::NONE_GIVEN,
            account: Account { left_ns: 0, deadline_ns: 0, exhaustions: 0, replenishments: 0 },
            policy: String::new(),
            options: String::new(),
            why: String::new(),
            now_ns: 0,
        }
    }

    /// The C struct; text that is too long is cut.
    pub fn to_bytes(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        let words = [VERSION, self.what as u32, self.domain, self.vcpu, self.units, self.failed.into()];
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

    /// Takes over what Xen has written.
    pub fn answer(&mut self, bytes: &[u8; BYTES]) {
        let word = |at: usize| u32::from_le_bytes(core::array::from_fn(|index| bytes[at + index]));
        let long = |at: usize| u64::from_le_bytes(core::array::from_fn(|index| bytes[at + index]));
        let text = |at: usize| {
            let text = &bytes[at..at + TEXT];
            let end = text.iter().position(|byte| *byte == 0).unwrap_or(TEXT);
            String::from_utf8_lossy(&text[..end]).into_owned()
        };
        (self.units, self.failed) = (word(16), word(20) != 0);
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
            ..Params::NONE_GIVEN
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
    fn bytes_survive_a_round_trip() {
        let mut op = Op::new(What::SetUnit);
        (op.domain, op.vcpu, op.units, op.failed, op.now_ns) = (7, 3, 12, true, 1 << 50);
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
            ..Params::NONE_GIVEN
        };
        (op.policy, op.options, op.why) = ("rtds".into(), "a=b".into(), "so".into());
        let bytes = op.to_bytes();
        let mut again = Op::new(What::SetUnit);
        again.answer(&bytes);
        (again.domain, again.vcpu) = (7, 3);
        assert_eq!(again.to_bytes(), bytes);
    }
}
