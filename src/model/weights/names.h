/* The names of our parameters in files, for the other files of this folder. */
#ifndef TSR_MODEL_WEIGHTS_NAMES_H
#define TSR_MODEL_WEIGHTS_NAMES_H

#include "model/weights/weights.h"

/* Returns the names that a family gives one of our parameters, or NULL. */
const tsr__weight_name *tsr__weight_name_of(const tsr__weights *w, int layer, const char *ours);
/* Returns whether each expert has a tensor of its own. */
bool tsr__weight_has_asterisk(const tsr__weights *w, const tsr__weight_name *name);
/* Replaces `old` in a name, which has it at most once. */
void tsr__weight_replace(const char *old, const char *new, char text[TSR__WEIGHT_NAME]);
/* Replaces the asterisk of a name. */
void tsr__weight_write_expert(int64_t expert, char text[TSR__WEIGHT_NAME]);
/* Makes the name of the tensor of one of our parameters. One of a single expert has an asterisk in
 * place of the expert's number. */
void tsr__weight_write_name(const tsr__weights *w, int layer, const char *ours,
                            const tsr__weight_name *name, char text[TSR__WEIGHT_NAME]);
/* Returns whether two parameters are in one tensor. `a` may be NULL. */
bool tsr__weight_same_name(const tsr__weights *w, const tsr__weight_name *a,
                           const tsr__weight_name *b);

#endif
