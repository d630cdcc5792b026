#!/usr/bin/env python3
"""Writes tests/fixtures/images.safetensors: small image files of every kind, as bytes, beside what
torchvision's evaluation transform makes of them, as 8-bit values. Needs torch, torchvision and
safetensors; run it only to change the fixture."""
import io
import pathlib
import struct
import zlib

import numpy as np
import torch
from PIL import Image, ImageOps
from safetensors.torch import save_file
from torchvision import transforms
from torchvision.transforms import functional as F

torch.set_num_threads(1)
rng = np.random.default_rng(0)


def picture(height, width):
    """Waves of several lengths and a little noise, every colour on its own."""
    y, x = np.mgrid[0:height, 0:width]
    planes = []
    for phase, (a, b) in enumerate([(0.11, 0.05), (0.07, 0.13), (0.03, 0.21)]):
        plane = 128 + 70 * np.sin(a * x + phase) + 50 * np.cos(b * y - phase * x * 0.01)
        planes.append(plane + rng.normal(0, 6, plane.shape))
    return np.clip(np.stack(planes, -1), 0, 255).astype(np.uint8)


def png(rows, width, height, depth, colour, interlaced=False):
    """A PNG from raw scan lines (each pass's rows behind one another, filter byte included)."""
    def chunk(kind, data):
        return (struct.pack(">I", len(data)) + kind + data +
                struct.pack(">I", zlib.crc32(kind + data)))
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, int(interlaced))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) +
            chunk(b"IEND", b""))


def interlaced(pixels):
    rows = b""
    for y0, x0, dy, dx in [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2),
                           (0, 1, 2, 2), (1, 0, 2, 1)]:
        for row in pixels[y0::dy, x0::dx]:
            if row.size:
                rows += b"\0" + row.tobytes()
    return png(rows, pixels.shape[1], pixels.shape[0], 8, 2, True)


def encoded(image, kind, **options):
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


tensors = {}


def add(name, data, image=None, resize=40, crop=32):
    image = ImageOps.exif_transpose(image or Image.open(io.BytesIO(data))).convert("RGB")
    transform = transforms.Compose([transforms.Resize(resize), transforms.CenterCrop(crop)])
    tensors[name + ".file"] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    tensors[name + ".expected"] = F.pil_to_tensor(transform(image)).contiguous()


wide, tall = picture(90, 131), picture(120, 77)
rgb = Image.fromarray(wide)
add("jpeg_420", encoded(rgb, "JPEG", quality=92))
add("jpeg_444", encoded(Image.fromarray(tall), "JPEG", quality=92, subsampling=0))
add("jpeg_422", encoded(rgb, "JPEG", quality=92, subsampling=1))
add("jpeg_progressive", encoded(rgb, "JPEG", quality=90, progressive=True))
add("jpeg_grey", encoded(rgb.convert("L"), "JPEG"))
add("jpeg_cmyk", encoded(rgb.convert("CMYK"), "JPEG", quality=92))
for orientation in range(1, 9):
    exif = Image.Exif()
    exif[0x0112] = orientation
    add(f"jpeg_turn_{orientation}", encoded(rgb, "JPEG", quality=92, exif=exif))
exif = Image.Exif()
exif[0x0112] = 6
add("png_turn_6", encoded(rgb, "PNG", exif=exif))
add("png_rgb", encoded(rgb, "PNG"))
add("png_grey", encoded(rgb.convert("L"), "PNG"))
add("png_bits", encoded(rgb.convert("1"), "PNG"))
add("png_palette", encoded(rgb.quantize(64), "PNG"))
alpha = rgb.copy()
alpha.putalpha(Image.fromarray(wide[:, :, 0]))
add("png_alpha", encoded(alpha, "PNG"))
add("png_grey_alpha", encoded(alpha.convert("LA"), "PNG"))
add("png_interlaced", interlaced(wide))
deep = wide[:, :, 0].astype(np.uint16) * 256 + 77
rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in deep)
add("png_grey_16", png(rows, 131, 90, 16, 0), Image.fromarray(wide[:, :, 0]))
rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in wide.astype(np.uint16) * 256 + 200)
add("png_rgb_16", png(rows, 131, 90, 16, 2), rgb)
add("upscaled", encoded(Image.fromarray(picture(19, 23)), "PNG"))
add("classic", encoded(Image.fromarray(picture(375, 500)), "JPEG", quality=85), None, 256, 224)

target = pathlib.Path(__file__).resolve().parent.parent / "tests/fixtures/images.safetensors"
save_file(tensors, target)
print(target, target.stat().st_size, "bytes")
