"""nnAudio: spectrograms."""

from nnAudio import features

from .program import Programs, leaf

programs = Programs("nnAudio")


def spectrum(layer):
    return layer, (leaf(2, 2048),)


@programs
def fourier():
    return spectrum(features.STFT(n_fft=256, hop_length=64, verbose=False))


@programs
def magnitude():
    return spectrum(features.STFT(n_fft=256, hop_length=64, output_format="Magnitude", verbose=False))


@programs
def trainable():
    return spectrum(features.STFT(n_fft=256, hop_length=64, trainable=True, verbose=False))


@programs
def mel():
    return spectrum(features.MelSpectrogram(sr=8000, n_fft=256, n_mels=20, hop_length=64, verbose=False))


@programs
def coefficients():
    return spectrum(features.MFCC(sr=8000, n_mfcc=10, n_fft=256, n_mels=20, hop_length=64, verbose=False))


@programs
def gammatone():
    return spectrum(features.Gammatonegram(sr=8000, n_fft=256, n_bins=20, hop_length=64, verbose=False))


@programs
def constant_q():
    return spectrum(features.CQT1992v2(sr=8000, hop_length=64, fmin=220, n_bins=24, bins_per_octave=12, verbose=False))


@programs
def constant_q_by_octaves():
    return spectrum(features.CQT2010v2(sr=8000, hop_length=64, fmin=220, n_bins=24, verbose=False))


@programs
def variable_q():
    return spectrum(features.VQT(sr=8000, hop_length=64, fmin=220, n_bins=24, verbose=False))


@programs
def inverse():
    layer = features.STFT(n_fft=256, hop_length=64, iSTFT=True, verbose=False)
    return lambda x: layer.inverse(layer(x, output_format="Complex"), length=2048), (leaf(2, 2048),)
