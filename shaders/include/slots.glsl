// States of many sequences in one tensor, a slot for each. The including file declares the constant SLOTS of params/slots.h.
#include "include/tessera.glsl"
#include "params/slots.h"

const uint TSR_NO_SLOT = 0xffffffffu;
const bool TSR_READS_SLOTS = (SLOTS & TSR_SLOTS_READ) != 0u;
const bool TSR_WRITES_SLOTS = (SLOTS & TSR_SLOTS_WRITE) != 0u;

// Entry i of a list of slots, or TSR_NO_SLOT if it is not less than `slots`, such as −1. If `listed` is false, there is no list: returns i.
uint tsr_slot(bool listed, uvec2 list, uint i, uint slots)
{
    if (!listed)
        return i;
    uint slot = tsr_words(list).v[i];
    return slot < slots ? slot : TSR_NO_SLOT;
}
