/* The internal structs of grammars. gbnf_read.c makes a tree of expressions of a text, automaton.c
 * an automaton of the tree, reading.c reads bytes with it, and mask.c finds the tokens that may
 * follow. */
#ifndef TSR_GRAMMAR_GRAMMAR_H
#define TSR_GRAMMAR_GRAMMAR_H

#include <stdbool.h>

#include "base/alloc.h"
#include "base/error.h"
#include "tessera/grammar.h"
#include "tokenizer/token_trie.h"

/* Expressions (gbnf_read.c) -------------------------------------------------------------------- */

typedef enum tsr__expression_kind {
    TSR__EXPRESSION_LITERAL,      /* bytes[first … first + count − 1] */
    TSR__EXPRESSION_CLASS,        /* a character of ranges[first … first + count − 1] */
    TSR__EXPRESSION_RULE,         /* rule `first` */
    TSR__EXPRESSION_SEQUENCE,     /* `child` is the last part, and `before` leads to those before */
    TSR__EXPRESSION_ALTERNATIVES, /* the same with alternatives */
    TSR__EXPRESSION_REPEAT        /* `child`, from `first` to `count` times; −1: any number */
} tsr__expression_kind;

typedef struct tsr__expression {
    tsr__expression_kind kind;
    int32_t child, before; /* expressions; −1: none */
    int32_t first, count;
    int32_t line, column; /* where it starts in the text, from 1 */
} tsr__expression;

typedef struct tsr__character_range {
    uint32_t low, high;
} tsr__character_range;

typedef struct tsr__rule {
    size_t name;        /* the offset of the name in `bytes`; a zero byte follows it */
    int32_t expression; /* −1: the rule has not been defined */
    int32_t line, column;
} tsr__rule;

typedef struct tsr__expressions {
    tsr__expression *list;
    size_t count, capacity;
    tsr__character_range *ranges;
    size_t range_count, range_capacity;
    tsr__rule *rules;
    size_t rule_count, rule_capacity;
    tsr__bytes bytes;
    int32_t *table; /* the hash table of rules by name: number + 1, or 0 */
    size_t table_size;
    size_t schema_count; /* schemas in the text */
    int32_t json_string; /* the rule of the strings of the first schema; 0: there is none */
} tsr__expressions;

/* Reads a grammar's text, whose rule 0 is `root`; `schema`: it has been made of a schema. All rules
 * are defined. The caller must call tsr__expressions_finish, also after an error. */
tsr_status tsr__gbnf_read(const tsr_tokenizer *tokenizer, const char *text, size_t size,
                          const char *root, bool schema, tsr__expressions *out) TSR_NODISCARD;
void tsr__expressions_finish(tsr__expressions *expressions);

/* Makes GBNF of a JSON schema, of which the caller must free out->data. */
tsr_status tsr__schema_to_gbnf(const char *text, size_t size, tsr__bytes *out) TSR_NODISCARD;

/* Automata (automaton.c) ----------------------------------------------------------------------- */

typedef enum tsr__state_kind {
    TSR__STATE_BYTE,  /* reads a byte from `low` to `high` and goes to `next` */
    TSR__STATE_SPLIT, /* goes to `next` and to `other` */
    TSR__STATE_CALL,  /* reads rule `other` and goes to `next` */
    TSR__STATE_END    /* the end of a rule */
} tsr__state_kind;

typedef struct tsr__state {
    uint8_t kind, low, high;
    int32_t next, other;
} tsr__state;

/* A state from which the same tokens of at most `depth` bytes can be read, up to the end of the
 * rule. */
typedef struct tsr__alike {
    int32_t state, depth;
} tsr__alike;
#define TSR__ALIKE_ALWAYS INT32_MAX /* as `depth`: all tokens */

typedef struct tsr__automaton {
    tsr__state *states;
    tsr__alike *alike;   /* by state: itself, or one with a smaller number */
    size_t shared_count; /* the first states are those of a string of JSON, as in other grammars */
    size_t count, capacity, alike_capacity;
    int32_t *starts; /* by rule; −1: it is part of the rules that use it */
    size_t rule_count;
    uint8_t classes[256]; /* by byte; bytes of a class are never told apart */
    int class_count;
} tsr__automaton;

/* Makes an automaton. Tokens have at most `longest` bytes. The caller must call
 * tsr__automaton_finish, also after an error. */
tsr_status tsr__automaton_build(const tsr__expressions *expressions, uint32_t longest,
                                tsr__automaton *out) TSR_NODISCARD;
void tsr__automaton_finish(tsr__automaton *automaton);
/* Refuses left recursion (left_recursion.c). */
tsr_status tsr__automaton_check(const tsr__expressions *expressions,
                                const tsr__automaton *automaton) TSR_NODISCARD;

/* Readings (reading.c) ------------------------------------------------------------------------- */

/* A stack has the states to which the rules return that are being read. Equal stacks are one: its
 * number is the index in `stacks`. */
typedef struct tsr__stack_node {
    int32_t below; /* the stack of the rule around; smaller than this stack's number */
    int32_t state; /* the state to which the rule returns */
    int32_t depth;
} tsr__stack_node;
#define TSR__STACK_ROOT 0  /* empty: the text ends with the rule */
#define TSR__STACK_LOCAL 1 /* the rules around are not looked at */
#define TSR__STACKS 2

/* One way to have read a text: the stack in the lower 32 bits, and in the upper ones a state that
 * reads a byte, or one of these: */
#define TSR__READING_END UINT32_C(0xffffffff)  /* the end of the text, with TSR__STACK_ROOT */
#define TSR__READING_LEFT UINT32_C(0xfffffffe) /* a rule has ended, with TSR__STACK_LOCAL */

/* The tokens that may follow a set of readings. */
typedef struct tsr__mask {
    uint32_t *words;
    /* of a set with TSR__STACK_LOCAL: the nodes of the trie at which its rule can end */
    uint32_t *ends;
    size_t end_count, end_capacity;
} tsr__mask;

/* All ways to have read a text, in ascending order. Equal sets are one. Set 0 is empty. */
typedef struct tsr__reading_set {
    size_t first; /* in `readings` */
    uint32_t count;
    bool ends;      /* has TSR__READING_END or TSR__READING_LEFT */
    bool asked;     /* its mask has been asked for */
    bool ahead;     /* tsr__masks_ahead visits it */
    int32_t *nexts; /* by class of bytes: the set that follows; −1: not computed; or NULL */
    tsr__mask *mask;
} tsr__reading_set;

/* What has been computed so far. It is thrown away when it becomes large. */
typedef struct tsr__readings {
    tsr__stack_node *stacks;
    size_t stack_count, stack_capacity;
    int32_t *stack_table; /* hash table: number + 1, or 0 */
    size_t stack_table_size;
    tsr__reading_set *sets;
    size_t set_count, set_capacity;
    int32_t *set_table;
    size_t set_table_size;
    uint64_t *readings;
    size_t reading_count, reading_capacity;
    uint64_t bytes; /* of masks and `nexts` */
} tsr__readings;

struct tsr_grammar_state {
    tsr_grammar *grammar;
    int32_t set;
    tsr_grammar_state *before, *after; /* the other states of the grammar */
};

/* A reading that a search has visited. */
typedef struct tsr__visit {
    uint64_t reading, search;
} tsr__visit;

/* The effort for one mask: about 0.1 seconds' work. A node of the trie that is visited counts as 1.
 */
#define TSR__MOST_EFFORT (UINT64_C(1) << 24)
#define TSR__READING_EFFORT 8 /* of following a reading */

typedef struct tsr__shared_masks tsr__shared_masks;

struct tsr_grammar {
    const tsr_tokenizer *tokenizer;
    uint64_t digest; /* a hash of kind and text */
    tsr__automaton automaton;
    tsr__token_trie *trie;     /* of the tokenizer */
    tsr__shared_masks *shared; /* NULL: none */
    tsr__readings readings;
    tsr_grammar_state *states; /* all that exist */
    /* memory for finding a set: what is to be visited, and a hash table of what was */
    uint64_t *work, *found;
    tsr__visit *visited;
    size_t work_capacity, found_capacity, visited_size;
    size_t found_count;
    uint64_t search; /* the number of this search */
    uint64_t effort; /* for this mask; see TSR__MOST_EFFORT */
    int32_t *path;   /* [2 · (longest + 1)]: sets on the way to a node of the trie */
    size_t mask_words;
    tsr__mask once;    /* the mask of a set that was asked for the first time */
    tsr__mask partial; /* of a set that is alike to another one up to a depth */
    int32_t *ends;     /* [end_count]: the tokens at which generation ends */
    size_t end_count;
};

/* Errors of the functions below: TSR_ERR_NO_MEMORY, and TSR_ERR_OVERFLOW for more than
 * TSR_GRAMMAR_MAX_READINGS readings or if the effort for a mask is too high. */

tsr_status tsr__too_ambiguous(void) TSR_NODISCARD;
/* Creates the sets and stacks that always exist. */
tsr_status tsr__readings_init(tsr__readings *readings) TSR_NODISCARD;
void tsr__readings_finish(tsr__readings *readings);
/* Throws away what no state of the grammar needs, if much has been computed. */
tsr_status tsr__readings_shrink(tsr_grammar *grammar) TSR_NODISCARD;
/* Returns whether so much has been computed that no more should be before it is asked for: many
 * grammars may wait for their texts. */
bool tsr__readings_are_many(const tsr__readings *readings);
/* Gives the set of all readings that begin at `count` states, each with its stack. */
tsr_status tsr__readings_find(tsr_grammar *grammar, size_t count, const uint64_t *starts,
                              int32_t *out) TSR_NODISCARD;
/* Gives the set that follows `set` by a byte; 0 if the byte is not allowed. */
tsr_status tsr__readings_step(tsr_grammar *grammar, int32_t set, uint8_t byte,
                              int32_t *out) TSR_NODISCARD;

static inline uint64_t tsr__reading(int32_t state, int32_t stack)
{
    return (uint64_t)(uint32_t)state << 32 | (uint32_t)stack;
}

/* Finds the tokens that may follow a set, without those that end a text (mask.c). *out is valid
 * until the next call. */
tsr_status tsr__mask_find(tsr_grammar *grammar, int32_t set, const tsr__mask **out) TSR_NODISCARD;

/* Finds masks that texts need later, in the order in which texts reach them, for at most about this
 * time. */
tsr_status tsr__masks_ahead(tsr_grammar *grammar, uint64_t time_ns) TSR_NODISCARD;

/* Masks that all grammars of a tokenizer share (shared_masks.c): those of states of strings in
 * JSON, which are the most expensive ones. Any number of threads may call these functions. */
/* Gives the list of a grammar's tokenizer; NULL if the grammar shares nothing. */
tsr_status tsr__shared_masks_of(const tsr_grammar *grammar, tsr__shared_masks **out) TSR_NODISCARD;
/* Returns the mask of a set of readings, or NULL. It lives as long as the tokenizer. */
const tsr__mask *tsr__shared_mask_find(const tsr_grammar *grammar, const uint64_t *readings,
                                       size_t count);
/* Moves a mask to the list, where *out is it; NULL if it cannot be shared. */
tsr_status tsr__shared_mask_add(const tsr_grammar *grammar, const uint64_t *readings, size_t count,
                                tsr__mask *mask, const tsr__mask **out) TSR_NODISCARD;

#endif
