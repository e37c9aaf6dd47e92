/* The values of tsr_activation, for shaders. */
#ifndef TSR_PARAMS_ACTIVATION_H
#define TSR_PARAMS_ACTIVATION_H

#define TSR_ACTIVATION_NONE 0u
#define TSR_ACTIVATION_RELU 1u
#define TSR_ACTIVATION_GELU_TANH 2u
#define TSR_ACTIVATION_GELU_ERF 3u
#define TSR_ACTIVATION_SILU 4u

#endif
