/* Layers of a configuration, by what they have. */
#include "model/config/config.h"

int tsr__config_window(const tsr_model_config *config, int64_t *window)
{
    for (int i = 0; i < config->layers; i++) {
        *window = tsr__config_layer(config, i)->window;
        if (*window > 0)
            return i;
    }
    *window = 0;
    return -1;
}

static const tsr_model_layer *first_layer(const tsr_model_config *config, bool windowed)
{
    for (int i = 0; i < config->layers; i++) {
        const tsr_model_layer *layer = tsr__config_layer(config, i);
        if ((layer->window > 0) == windowed)
            return layer;
    }
    return tsr__config_layer(config, 0);
}

const tsr_model_layer *tsr__config_window_layer(const tsr_model_config *config)
{
    return first_layer(config, true);
}

const tsr_model_layer *tsr__config_full_layer(const tsr_model_config *config)
{
    return first_layer(config, false);
}

int tsr__config_keys_layer(const tsr_model_config *config, int layer)
{
    const tsr_model_layer *own = tsr__config_layer(config, layer);
    int source = layer;
    while (own->shared_keys && source >= 0 &&
           (tsr__config_layer(config, source)->shared_keys ||
            tsr__config_layer(config, source)->window != own->window))
        source--;
    return source;
}

int tsr__config_shared_layers(const tsr_model_config *config)
{
    int count = 0;
    while (count < config->layers &&
           tsr__config_layer(config, config->layers - 1 - count)->shared_keys)
        count++;
    return count;
}

int tsr__config_first_experts(const tsr_model_config *config)
{
    int first = 0;
    while (first < config->layers && !tsr__config_layer(config, first)->experts)
        first++;
    return first;
}

static int expert_layers_before(const tsr_model_config *c, int layer)
{
    int count = 0;
    for (int i = 0; i < layer; i++)
        count += tsr__config_layer(c, i)->experts != NULL;
    return count;
}

int tsr__config_expert_layers(const tsr_model_config *config)
{
    return expert_layers_before(config, config->layers);
}

bool tsr__config_host_experts(const tsr_model_config *config, int layer, int count)
{
    return layer >= 0 && count > 0 && tsr__config_layer(config, layer)->experts &&
           expert_layers_before(config, layer) < count;
}

const tsr_model_experts *tsr__config_experts(const tsr_model_config *config)
{
    const int first = tsr__config_first_experts(config);
    return first < config->layers ? tsr__config_layer(config, first)->experts : NULL;
}

const tsr_model_layer *tsr__config_rotary_layer(const tsr_model_config *config)
{
    const tsr_model_layer *found = NULL;
    for (int i = 0; i < config->layers; i++) {
        const tsr_model_layer *layer = tsr__config_layer(config, i);
        if (layer->rope && layer->window == 0)
            return layer;
        if (layer->rope && !found)
            found = layer;
    }
    return found ? found : tsr__config_layer(config, 0);
}

bool tsr__layer_has_state(const tsr_model_layer *layer)
{
    return layer->delta_net || layer->conv_taps > 0;
}

bool tsr__config_has_states(const tsr_model_config *config)
{
    for (int i = 0; i < config->layers; i++)
        if (tsr__layer_has_state(tsr__config_layer(config, i)))
            return true;
    return false;
}

const tsr_model_layer *tsr__config_attention_layer(const tsr_model_config *config)
{
    for (int i = 0; i < config->layers; i++)
        if (!tsr__layer_has_state(tsr__config_layer(config, i)))
            return tsr__config_layer(config, i);
    return NULL;
}

const tsr_model_layer *tsr__config_usual_layer(const tsr_model_config *config)
{
    const tsr_model_layer *found = tsr__config_attention_layer(config);
    return found ? found : tsr__config_layer(config, 0);
}

const tsr_model_delta_net *tsr__config_delta_net(const tsr_model_config *config, int *first)
{
    for (*first = 0; *first < config->layers; ++*first)
        if (tsr__config_layer(config, *first)->delta_net)
            return tsr__config_layer(config, *first)->delta_net;
    return NULL;
}

bool tsr__config_is_next(const tsr_model_config *config, int layer)
{
    return layer >= config->layers && layer - config->layers < config->next_token_layers;
}

int tsr__config_kind(const tsr_model_config *config, int layer)
{
    if (tsr__config_is_next(config, layer)) {
        layer = config->layers - 1;
        while (layer > 0 && tsr__layer_has_state(tsr__config_layer(config, layer)))
            layer--;
    }
    return config->layer_kinds ? config->layer_kinds[layer] : 0;
}

const tsr_model_layer *tsr__config_layer(const tsr_model_config *config, int layer)
{
    if (!config || layer < 0 || (layer >= config->layers && !tsr__config_is_next(config, layer)))
        return NULL;
    return config->kinds[tsr__config_kind(config, layer)];
}
