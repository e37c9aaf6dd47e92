/* Which states of a call are in slots (tessera/recurrent.h), as a specialization constant. */
#ifndef TSR_PARAMS_SLOTS_H
#define TSR_PARAMS_SLOTS_H

#define TSR_SLOTS_READ 1u
#define TSR_SLOTS_WRITE 2u
#define TSR_SLOTS_EACH_TOKEN 4u /* with TSR_SLOTS_WRITE: write_slots is [batch, tokens] */

#endif
