// The new state of the causal convolution. The including file includes causal_conv.glsl first.
// Writes the new state of a channel of row b: its last inputs. All of them are read first.
void conv_keep(uint b, uint slot, uint c, uint length)
{
    uint new_slot = tsr_slot(TSR_WRITES_SLOTS, p.write_slots, b, p.slots);
    if (TSR_WRITES_SLOTS && new_slot == TSR_NO_SLOT)
        return;
    int first = length > 0u ? conv_first(b, length - 1u) : -int(TAPS);
    float kept[TAPS];
    [[unroll]] for (uint j = 0u; j + 1u < TAPS; j++) {
        int t = int(length) - int(TAPS) + 1 + int(j);
        kept[j] = t >= first ? conv_input(b, slot, t, c) : 0.0;
    }
    [[unroll]] for (uint j = 0u; j + 1u < TAPS; j++)
        tsr_floats(tsr_at_mul(p.new_state, new_slot * p.channels + c, (TAPS - 1u) * 4u)).v[j] = kept[j];
}
