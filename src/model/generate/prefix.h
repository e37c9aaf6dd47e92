/* The prefix cache: keys and values of the first tokens of prompts, which later prompts that begin
 * with the same tokens use again.
 *
 * Tokens are kept in blocks of one piece of a prompt each (tsr_generator_params), which fill whole
 * pages of the cache. A block is found by its own tokens and the block before it, so a chain of
 * blocks stands for all tokens from the beginning of a prompt on. A block's keys and values are
 * those of a prompt that was divided at multiples of the block's size from its beginning on. They
 * therefore have the same bits as if the later prompt had computed them. */
#ifndef TSR_MODEL_GENERATE_PREFIX_H
#define TSR_MODEL_GENERATE_PREFIX_H

#include <stdbool.h>
#include <stdint.h>

#include "tessera/kv_cache.h"

typedef struct tsr__prefix tsr__prefix;

#define TSR__PREFIX_NONE (-1) /* no block */

/* Creates an empty prefix cache for blocks of block_tokens tokens in pages of page_tokens, of which
 * the cache has `pages`. `states`: its sequences have states, which blocks keep as snapshots. */
tsr_status tsr__prefix_create(tsr_kv_cache *cache, int64_t block_tokens, int64_t page_tokens,
                              int64_t pages, bool states, tsr__prefix **out) TSR_NODISCARD;
/* Sets *prefix to NULL. Does not release pages: the cache may have been destroyed. */
void tsr__prefix_destroy(tsr__prefix **prefix);
/* Forgets all blocks and releases their pages. No sequence uses a block any more. */
void tsr__prefix_clear(tsr__prefix *prefix);

/* Returns the block with these tokens [block_tokens] that follows the block `before`, or
 * TSR__PREFIX_NONE. Chains of blocks with different numbers `chain` have nothing in common:
 * adapters give the same tokens other keys. */
int tsr__prefix_find(const tsr__prefix *prefix, uint64_t chain, int before, const int32_t *tokens);
/* Returns whether a sequence can go on after a block: with states, whether the block still has its
 * snapshot. */
bool tsr__prefix_resumable(const tsr__prefix *prefix, int block);
/* Gives a sequence of the cache the tokens of a block. They must follow those it has. If the block
 * is the last one, it must be resumable. The sequence uses the block, as it uses those before,
 * until tsr__prefix_leave. */
tsr_status tsr__prefix_use(tsr__prefix *prefix, int block, int sequence, bool last) TSR_NODISCARD;
/* Keeps the last block_tokens tokens of a sequence of the cache, which follow the block `before`,
 * the last one that the sequence uses. Returns the new block, which the sequence uses, too, or
 * TSR__PREFIX_NONE if there is such a block already. With states, returns that block, which gets
 * the sequence's snapshot if its own has left. */
int tsr__prefix_add(tsr__prefix *prefix, uint64_t chain, int before, const int32_t *tokens,
                    int sequence);
/* Ends a sequence's use of its last block, and of all before it; TSR__PREFIX_NONE: it uses none. */
void tsr__prefix_leave(tsr__prefix *prefix, int block);
/* Ends a sequence's use of its last block only, and returns the one before it. */
int tsr__prefix_leave_last(tsr__prefix *prefix, int block);

/* Forgets the block that no sequence has used for the longest time, of which no other one is a
 * continuation. Returns false if sequences use all blocks. */
bool tsr__prefix_evict(tsr__prefix *prefix);
/* Returns the number of pages that evicting all such blocks would free. */
int64_t tsr__prefix_evictable_pages(const tsr__prefix *prefix);
/* Returns the number of pages of all blocks. */
int64_t tsr__prefix_pages(const tsr__prefix *prefix);

#endif
