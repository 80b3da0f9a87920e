"""The transformers part of the zoo: architectures of every kind, as deep as they are published.

Input: the installed transformers. Output: `MODELS`, name → `Entry`. Nothing is downloaded.
"""

from __future__ import annotations

import torch

from .zoo_inputs import (
    IMAGE,
    IMAGE_SIZE,
    VOCABULARY,
    Entry,
    backbone,
    case,
    document,
    document_with_image,
    image,
    image_and_text,
    image_in_text,
    image_of,
    labelled_text,
    labelled_two_texts,
    long_text,
    long_two_texts,
    masked_long_two_texts,
    masked_text,
    patches,
    series,
    spectrogram_and_text,
    text,
    tokens,
    two_texts,
    video,
    waveform,
)

SMALL_IMAGE = {"image_size": IMAGE_SIZE, "patch_size": 8}
RESNET = {"embedding_size": 8, "hidden_sizes": [8, 16, 32, 64]}
SWIN = {"embed_dim": 16, "num_heads": [2, 2, 4, 4], "image_size": 64, "window_size": 2}
LATENT = {"q_lora_rank": 32, "kv_lora_rank": 32, "qk_rope_head_dim": 16, "qk_nope_head_dim": 16, "v_head_dim": 16}
LINEAR = {
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
}
QUERIES = {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "d_model": 32, "num_queries": 10}

MODELS: dict[str, Entry] = {
    # encoders
    "bert": case("BertForMaskedLM", labelled_text, train=True),
    "roberta": case("RobertaForSequenceClassification", masked_text, train=True),
    "albert": case("AlbertModel", text, train=True),
    "distilbert": case("DistilBertModel", masked_text, train=True),
    "electra": case("ElectraForPreTraining", text),
    "deberta_v2": case("DebertaV2Model", text, relative_attention=True, pos_att_type=["p2c", "c2p"], train=True),
    "mobilebert": case(
        "MobileBertForQuestionAnswering", text, hidden_size=512, intermediate_size=512, embedding_size=128, train=True
    ),
    "squeezebert": case("SqueezeBertModel", masked_text),
    "convbert": case("ConvBertModel", text),
    "funnel": case("FunnelModel", text),
    "xlnet": case("XLNetLMHeadModel", text, train=True),
    "fnet": case("FNetModel", text),
    "modernbert": case("ModernBertForMaskedLM", masked_text, train=True),
    "longformer": case("LongformerModel", text, attention_window=8),
    "reformer": case(
        "ReformerModel",
        long_text(32),
        hidden_size=64,
        attn_layers=["local", "lsh"] * 3,
        axial_pos_shape=[4, 8],
        axial_pos_embds_dim=[32, 32],
        num_buckets=2,
        local_attn_chunk_length=8,
        lsh_attn_chunk_length=8,
    ),
    "big_bird": case("BigBirdModel", long_text(128), block_size=8, num_random_blocks=2),
    "canine": case("CanineModel", long_text(32), num_hash_buckets=64),
    "ibert": case("IBertModel", text),
    "esm": case(
        "EsmModel",
        masked_text,
        vocab_size=VOCABULARY,
        mask_token_id=2,
        pad_token_id=1,
        position_embedding_type="rotary",
    ),
    # decoders
    "gpt2": case("GPT2LMHeadModel", labelled_text, train=True),
    "gpt_neo": case("GPTNeoForCausalLM", text),
    "gpt_neox": case("GPTNeoXForCausalLM", text),
    "gptj": case("GPTJForCausalLM", text, rotary_dim=8),
    "opt": case("OPTForCausalLM", masked_text, train=True),
    "bloom": case("BloomForCausalLM", masked_text, n_layer=24, n_head=4),
    "falcon": case("FalconForCausalLM", text),
    "mpt": case("MptForCausalLM", masked_text),
    "llama": case("LlamaForCausalLM", labelled_text, train=True),
    "mistral": case("MistralForCausalLM", masked_text, sliding_window=8),
    "gemma2": case("Gemma2ForCausalLM", text, sliding_window=8),
    "gemma3": case("Gemma3ForCausalLM", text, sliding_window=8, train=True),
    "gemma3n": case(
        "Gemma3nForCausalLM",
        text,
        hidden_size_per_layer_input=16,
        vocab_size_per_layer_input=VOCABULARY,
        intermediate_size=128,
        laurel_rank=8,
    ),
    "gemma4": case(
        "Gemma4ForCausalLM",
        text,
        hidden_size_per_layer_input=16,
        vocab_size_per_layer_input=VOCABULARY,
        sliding_window=8,
    ),
    "phi3": case("Phi3ForCausalLM", masked_text),
    "cohere2": case("Cohere2ForCausalLM", text, sliding_window=8),
    "qwen3": case("Qwen3ForCausalLM", labelled_text, num_hidden_layers=28, train=True),
    # mixtures of experts
    "mixtral": case("MixtralForCausalLM", text, train=True),
    "qwen3_moe": case("Qwen3MoeForCausalLM", text),
    "olmoe": case("OlmoeForCausalLM", text),
    "gpt_oss": case("GptOssForCausalLM", text, sliding_window=8),
    "deepseek_v3": case("DeepseekV3ForCausalLM", text, **LATENT, n_group=2, topk_group=1, num_key_value_heads=4),
    "llama4": case("Llama4ForCausalLM", text, intermediate_size_mlp=128, attention_chunk_size=8),
    "glm4_moe": case("Glm4MoeForCausalLM", text),
    "switch_transformers": case("SwitchTransformersForConditionalGeneration", two_texts, num_heads=4),
    # state spaces, recurrences, linear attention
    "mamba": case("MambaForCausalLM", text, state_size=8, time_step_rank=4, train=True),
    "mamba2": case("Mamba2ForCausalLM", text, num_heads=8, head_dim=16, state_size=16, n_groups=2, chunk_size=8),
    "falcon_mamba": case("FalconMambaForCausalLM", text, intermediate_size=128, time_step_rank=4),
    "jamba": case("JambaForCausalLM", text, mamba_dt_rank=4, mamba_d_state=8),
    "bamba": case(
        "BambaForCausalLM",
        text,
        mamba_n_heads=8,
        mamba_d_head=16,
        mamba_d_state=16,
        mamba_chunk_size=8,
        attn_layer_indices=[9, 18, 27],
    ),
    "rwkv": case("RwkvForCausalLM", text, attention_hidden_size=64),
    "recurrent_gemma": case("RecurrentGemmaForCausalLM", text, lru_width=64, attention_window_size=16),
    "lfm2": case(
        "Lfm2ForCausalLM", text, layer_types=["conv", "conv", "full_attention", "conv"] * 8, block_multiple_of=32
    ),
    "qwen3_next": case("Qwen3NextForCausalLM", text, **LINEAR),
    # encoder and decoder
    "t5": case("T5ForConditionalGeneration", labelled_two_texts, num_heads=4, decoder_start_token_id=0, train=True),
    "bart": case("BartForConditionalGeneration", labelled_two_texts, train=True),
    "pegasus_x": case("PegasusXModel", long_two_texts(32), block_size=8, num_global_tokens=4),
    "longt5": case(
        "LongT5Model",
        masked_long_two_texts(32),
        num_heads=4,
        local_radius=7,
        encoder_attention_type="transient-global",
        global_block_size=4,
    ),
    "led": case("LEDModel", long_two_texts(32), attention_window=8),
    "m2m_100": case("M2M100Model", two_texts),
    "prophetnet": case("ProphetNetModel", two_texts),
    # vision
    "vit": case("ViTForImageClassification", image, **SMALL_IMAGE, train=True),
    "beit": case("BeitModel", image, **SMALL_IMAGE, use_relative_position_bias=True),
    "dinov2": case("Dinov2Model", image, image_size=28, patch_size=7, train=True),
    "dinov3_vit": case("DINOv3ViTModel", image, **SMALL_IMAGE),
    "swin": case("SwinModel", image, **SWIN, train=True),
    "swinv2": case(
        "Swinv2Model", image, image_size=64, patch_size=4, embed_dim=16, num_heads=[2, 2, 4, 4], window_size=4
    ),
    "convnextv2": case(
        "ConvNextV2ForImageClassification", image, image_size=64, hidden_sizes=[8, 16, 32, 64], train=True
    ),
    "resnet": case("ResNetModel", image_of(64), embedding_size=16, hidden_sizes=[16, 32, 64, 128], train=True),
    "mobilevit": case("MobileViTModel", image_of(64), hidden_sizes=[16, 32, 48], image_size=64),
    "poolformer": case("PoolFormerModel", image_of(64), hidden_sizes=[8, 16, 32, 64]),
    "hiera": case("HieraModel", image, image_size=[64, 64], embed_dim=16, num_heads=[1, 2, 4, 8]),
    "vit_mae": case("ViTMAEModel", image, **SMALL_IMAGE, decoder_hidden_size=32, decoder_intermediate_size=64),
    "videomae": case("VideoMAEModel", video(4), **SMALL_IMAGE, num_frames=4),
    "timesformer": case("TimesformerModel", video(2), **SMALL_IMAGE, num_frames=2),
    # detection and segmentation
    "detr": case(
        "DetrForObjectDetection",
        image_of(64),
        **QUERIES,
        backbone_config=backbone("ResNetConfig", **RESNET, out_indices=[4]),
    ),
    "deformable_detr": case(
        "DeformableDetrForObjectDetection",
        image_of(64),
        **QUERIES,
        backbone_config=backbone("ResNetConfig", **RESNET, out_indices=[2, 3, 4]),
    ),
    "conditional_detr": case(
        "ConditionalDetrForObjectDetection",
        image_of(64),
        **QUERIES,
        backbone_config=backbone("ResNetConfig", **RESNET, out_indices=[4]),
    ),
    "rt_detr": case(
        "RTDetrForObjectDetection",
        image_of(64),
        d_model=32,
        encoder_hidden_dim=32,
        num_queries=10,
        encoder_in_channels=[16, 32, 64],
        decoder_in_channels=[32, 32, 32],
        backbone_config=backbone("RTDetrResNetConfig", **RESNET, out_indices=[2, 3, 4]),
    ),
    "yolos": case(
        "YolosForObjectDetection", image, image_size=[IMAGE_SIZE, IMAGE_SIZE], patch_size=8, num_detection_tokens=5
    ),
    "segformer": case(
        "SegformerForSemanticSegmentation",
        image_of(64),
        hidden_sizes=[8, 16, 32, 64],
        decoder_hidden_size=32,
        train=True,
    ),
    "mask2former": case(
        "Mask2FormerForUniversalSegmentation",
        image_of(64),
        feature_size=32,
        mask_feature_size=32,
        hidden_dim=32,
        encoder_feedforward_dim=64,
        dim_feedforward=64,
        num_queries=10,
        backbone_config=backbone("SwinConfig", **SWIN, out_indices=[1, 2, 3, 4]),
    ),
    "upernet": case(
        "UperNetForSemanticSegmentation",
        image_of(64),
        hidden_size=32,
        auxiliary_channels=16,
        backbone_config=backbone("ResNetConfig", **RESNET, out_indices=[1, 2, 3, 4]),
    ),
    "sam": case(
        "SamModel",
        image,
        vision_config={"image_size": 64, "patch_size": 8, "output_channels": 16, "num_pos_feats": 8, "window_size": 4},
        prompt_encoder_config={"hidden_size": 16, "image_size": 64, "patch_size": 8, "mask_input_channels": 4},
        mask_decoder_config={"hidden_size": 16, "mlp_dim": 32, "iou_head_hidden_dim": 16},
    ),
    "dpt": case(
        "DPTForDepthEstimation", image, **SMALL_IMAGE, neck_hidden_sizes=[8, 16, 32, 64], fusion_hidden_size=16
    ),
    # audio
    "wav2vec2": case(
        "Wav2Vec2ForCTC",
        waveform,
        conv_dim=[32] * 7,
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=4,
        train=True,
    ),
    "hubert": case(
        "HubertModel", waveform, conv_dim=[32] * 7, num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4
    ),
    "wav2vec2_conformer": case(
        "Wav2Vec2ConformerModel",
        waveform,
        conv_dim=[32] * 7,
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=4,
    ),
    "whisper": case(
        "WhisperForConditionalGeneration", spectrogram_and_text(80, 100), max_source_positions=50, train=True
    ),
    "audio_spectrogram_transformer": case(
        "ASTModel", lambda config, batch: {"input_values": torch.randn(batch, 64, 32)}, num_mel_bins=32, max_length=64
    ),
    "encodec": case(
        "EncodecModel",
        lambda config, batch, length=0: {"input_values": torch.randn(batch, 1, 2000 + 100 * length)},
        num_filters=8,
        hidden_size=32,
    ),
    "speecht5": case(
        "SpeechT5ForSpeechToText",
        lambda config, batch, length=0: {**waveform(config, batch, length), "decoder_input_ids": tokens(batch, 8)},
        conv_dim=[32] * 7,
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=4,
    ),
    # several modalities, documents
    "clip": case("CLIPModel", image_and_text, vision_config=SMALL_IMAGE, train=True),
    "siglip": case("SiglipModel", image_and_text, vision_config=SMALL_IMAGE),
    "blip": case("BlipForConditionalGeneration", image_and_text, vision_config=SMALL_IMAGE),
    "vilt": case("ViltModel", image_and_text, **SMALL_IMAGE),
    "llava": case(
        "LlavaForConditionalGeneration",
        image_in_text(16),
        vision_config=SMALL_IMAGE,
        image_token_index=IMAGE,
        image_seq_length=16,
        train=True,
    ),
    "paligemma": case(
        "PaliGemmaForConditionalGeneration",
        image_in_text(16, typed=True),
        vision_config=SMALL_IMAGE,
        image_token_index=IMAGE,
        image_seq_length=16,
        projection_dim=64,
    ),
    "qwen2_5_vl": case(
        "Qwen2_5_VLForConditionalGeneration",
        patches((4, 4), 8),
        image_token_id=IMAGE,
        vision_config={"patch_size": 8, "hidden_size": 64, "num_heads": 4, "out_hidden_size": 64, "window_size": 32},
        text_config={"rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [2, 3, 3]}},
    ),
    "qwen3_vl": case(
        "Qwen3VLForConditionalGeneration",
        patches((4, 4), 8),
        image_token_id=IMAGE,
        vision_config={"patch_size": 8, "hidden_size": 64, "num_heads": 4, "out_hidden_size": 64},
        text_config={"rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [2, 3, 3]}},
    ),
    "qwen3_5": case("Qwen3_5ForCausalLM", text, **LINEAR),
    "trocr": case("TrOCRForCausalLM", text),
    "layoutlm": case("LayoutLMModel", document, train=True),
    "layoutlmv3": case(
        "LayoutLMv3Model", document_with_image(32), input_size=32, patch_size=8, coordinate_size=11, shape_size=10
    ),
    "lilt": case("LiltModel", document, hidden_size=96),
    "perceiver": case(
        "PerceiverModel",
        lambda config, batch, length=0: {"inputs": torch.randn(batch, 20 + length, 64)},
        d_model=64,
        d_latents=64,
        num_latents=8,
    ),
    # series
    "patchtst": case("PatchTSTModel", series),
}
