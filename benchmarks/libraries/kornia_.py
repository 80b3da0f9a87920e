"""kornia: computer vision."""

import kornia
import kornia.augmentation as augmentation
import torch

from .program import Programs, image, leaf

programs = Programs("kornia")


@programs
def blur():
    return lambda x: kornia.filters.gaussian_blur2d(x, (5, 5), (1.5, 1.5)), (leaf(2, 3, 16, 16),)


@programs
def edges():
    return kornia.filters.Canny(), (image(),)


@programs
def colours():
    return lambda x: kornia.color.lab_to_rgb(kornia.color.rgb_to_lab(x)), (image(),)


@programs
def hsv():
    return lambda x: kornia.color.hsv_to_rgb(kornia.color.rgb_to_hsv(x)), (image(),)


@programs
def warp():
    def fn(x, angle):
        centre = torch.tensor([[16.0, 16.0]]).expand(2, -1)
        matrix = kornia.geometry.get_rotation_matrix2d(centre, angle, torch.ones(2, 2))
        return kornia.geometry.warp_affine(x, matrix, dsize=(32, 32))

    return fn, (image(), leaf(2))


@programs
def augmentations():
    return augmentation.AugmentationSequential(
        augmentation.RandomHorizontalFlip(p=1.0), augmentation.ColorJitter(0.1, 0.1, 0.1, 0.1, p=1.0)
    ), (image(),)


@programs
def homography():
    points = torch.rand(1, 4, 2)
    return kornia.geometry.get_perspective_transform, (points, points + 0.1 * torch.rand(1, 4, 2))


@programs
def ssim_loss():
    return lambda x, y: kornia.losses.ssim_loss(x, y, 5), (leaf(2, 3, 16, 16), image(size=16))


@programs
def focal_loss():
    return lambda x, y: kornia.losses.focal_loss(x, y, alpha=0.5, reduction="mean"), (
        leaf(2, 4, 5, 5),
        torch.randint(0, 4, (2, 5, 5)),
    )


@programs
def quaternions():
    return lambda q: kornia.geometry.quaternion_to_rotation_matrix(kornia.geometry.normalize_quaternion(q)), (
        leaf(3, 4),
    )
