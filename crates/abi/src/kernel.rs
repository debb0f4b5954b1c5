//! What the host and the megakernel hand each other.

/// The largest number of blocks of a launch, and so the size of the final slot.
pub const BLOCKS_MAX: u32 = 256;
/// The largest number of stop tokens that a launch looks for itself.
pub const EOS_MAX: usize = 4;
/// The row that stands for "a logit is not a number".
pub const NOT_A_NUMBER: u32 = u32::MAX;
/// The row that stands for "no logit yet".
pub const NO_ROW: u32 = NOT_A_NUMBER - 1;

/// [`StepArgs::flags`]: the LM head runs (a prompt's inner tokens need no logits).
pub const STEP_HAS_HEAD: u32 = 1;
/// [`StepArgs::flags`]: the greedy token is appended to the tokens, and ends the text if it is
/// one of the ids that do.
pub const STEP_APPENDS: u32 = 2;

/// [`Control::stopped`]: the greedy token was one that ends a text.
pub const STOPPED_END_OF_TEXT: u32 = 1;
/// [`Control::stopped`]: a logit was not a number.
pub const STOPPED_NOT_A_NUMBER: u32 = 2;

/// [`FaultRecord::state`]: the record is whole.
pub const FAULT_FILLED: u32 = 1;

/// [`StepArgs::injected_kind`]: a block does not publish a phase's values.
pub const INJECTED_NO_POST: u32 = 1;
/// [`StepArgs::injected_kind`]: a block's loader omits a phase's copies.
pub const INJECTED_NO_LOAD: u32 = 2;
/// [`StepArgs::injected_kind`]: a block's consumers do not release a phase's stages.
pub const INJECTED_NO_RELEASE: u32 = 3;

wire_struct! {
    /// The kernel's parameters. Pointers are device addresses; offsets are bytes from `weights`,
    /// or from a layer's first section.
    StepArgs {
        /// The pack's payload.
        weights: u64, "const u8* @";
        /// KV cache, bf16, `[layer][key, value][KV head][context][head_dim]`.
        kv: u64, "u16* @";
        /// The exchange's units.
        slots: u64, "u64* @";
        /// Token ids, `[context + 1]`.
        tokens: u64, "u32* @";
        /// The greedy next token at each position, `[context]`.
        greedy: u64, "u32* @";
        /// Logits, `[vocab]`, or null.
        logits: u64, "float* @";
        /// Cosine and sine, `[context][head_dim / 2]`.
        rope: u64, "const float2* @";
        /// Words that outlive a launch.
        control: u64, "Control* @";
        /// Host memory, mapped.
        fault: u64, "FaultRecord* @";
        /// First section of layer 0.
        layer_base: u64, "u64 @";
        /// From one layer to the next.
        layer_stride: u64, "u64 @";
        /// Within a layer: input norm, post-attention norm, q norm, k norm.
        norms: u64, "u64 @";
        /// Within a layer.
        qkv: u64, "u64 @";
        /// Within a layer.
        o_proj: u64, "u64 @";
        /// Within a layer.
        gate_up: u64, "u64 @";
        /// Within a layer.
        down: u64, "u64 @";
        /// Norm before the LM head.
        final_norm: u64, "u64 @";
        /// LM head.
        lm_head: u64, "u64 @";
        /// Embedding.
        embedding: u64, "u64 @";
        /// How long a wait may last.
        timeout_ns: u64, "u64 @";
        /// What each block waited for when the launch aborted: `[blocks][2]`, its consumers and its
        /// loader.
        waits: u64, "FaultRecord* @";
        /// The X-ray's buffers, [`XRAY_BLOCK_BYTES`] a block, or null: this step is not recorded.
        xray: u64, "u8* @";
        /// Step number, from 1.
        epoch: u32, "u32 @";
        /// Position of the token.
        position: u32, "u32 @";
        /// Positions in the KV cache.
        context: u32, "u32 @";
        /// `STEP_*`.
        flags: u32, "u32 @";
        /// RMSNorm epsilon.
        norm_eps: f32, "float @";
        /// Ids in `eos`.
        eos_count: u32, "u32 @";
        /// Ids that end a text.
        eos: [u32; EOS_MAX], "u32 @[EOS_MAX]";
        /// `INJECTED_*`, or 0: a fault for the tests of the fault path.
        injected_kind: u32, "u32 @";
        /// Which block.
        injected_block: u32, "u32 @";
        /// Which layer.
        injected_layer: u32, "u32 @";
        /// Which phase.
        injected_phase: u32, "u32 @";
        /// If not 0, the seed of pseudo-random delays, which are injected before some gathers.
        delay_seed: u32, "u32 @";
        /// Reserved; makes the size explicit.
        reserved: u32, "u32 @";
    }
}

wire_struct! {
    /// What differs from step to step, where a step is more than one launch: the kernels read it
    /// from device memory, and a step's last kernel makes it the next step's.
    StepWords {
        /// [`StepArgs::logits`].
        logits: u64, "float* @";
        /// [`StepArgs::epoch`].
        epoch: u32, "u32 @";
        /// [`StepArgs::position`].
        position: u32, "u32 @";
        /// [`StepArgs::flags`].
        flags: u32, "u32 @";
        /// [`StepArgs::eos_count`].
        eos_count: u32, "u32 @";
        /// [`StepArgs::eos`].
        eos: [u32; EOS_MAX], "u32 @[EOS_MAX]";
        /// Blocks of the running step that have published the best of their logits.
        arrived: u32, "u32 @";
        /// Reserved; makes the size explicit.
        reserved: u32, "u32 @";
    }
}

wire_struct! {
    /// The second parameter of a kernel that is one phase of a step.
    PhaseArgs {
        /// What differs from step to step.
        step: u64, "StepWords* @";
        /// The layer.
        layer: u32, "u32 @";
        /// Reserved; makes the size explicit.
        reserved: u32, "u32 @";
    }
}

wire_struct! {
    /// Words in device memory that outlive a launch.
    Control {
        /// Not 0: a block gave up; all blocks abort.
        abort: u32, "u32 @";
        /// Not 0: some thread is writing the fault record.
        fault_claimed: u32, "u32 @";
        /// `STOPPED_*`, or 0. Not 0: the launches that follow do nothing.
        stopped: u32, "u32 @";
        /// Of the waits that timed out, the rank of the first one in the order in which data flows,
        /// with its bits inverted.
        rank_inverted: u32, "u32 @";
    }
}

wire_struct! {
    /// A wait that was given up.
    FaultRecord {
        /// [`FAULT_FILLED`] once the rest is written.
        state: u32, "u32 @";
        /// A [`crate::WaitKind`].
        kind: u32, "u32 @";
        /// Who waited.
        block: u32, "u32 @";
        /// Which warp of the block.
        warp: u32, "u32 @";
        /// The layer that was waited for, or `NO_LAYER`.
        layer: u32, "u32 @";
        /// The phase that was waited for: a [`crate::Phase`].
        phase: u32, "u32 @";
        /// Exchange: the unit. Ring: the stage.
        unit: u32, "u32 @";
        /// Epoch or parity waited for.
        expected: u32, "u32 @";
        /// Epoch or parity seen.
        seen: u32, "u32 @";
        /// The step's epoch.
        epoch: u32, "u32 @";
        /// Reserved; makes the size explicit.
        reserved: [u32; 6], "u32 @[6]";
    }
}

const _: () = assert!(size_of::<FaultRecord>() == 64 && size_of::<Control>() == 16);
const _: () = assert!(size_of::<StepArgs>() == 22 * 8 + 16 * 4);
const _: () = assert!(size_of::<StepWords>() == 8 + 10 * 4 && size_of::<PhaseArgs>() == 16);
