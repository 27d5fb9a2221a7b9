"""Which GPU a person means."""

from __future__ import annotations

import pytest

from penstock.domain.nodes import product_matches


@pytest.mark.parametrize(
    ("wanted", "product"),
    [
        ("A10", "NVIDIA A10"),
        ("a10", "NVIDIA A10"),
        ("nvidia-a10", "NVIDIA A10"),
        ("NVIDIA_A10", "NVIDIA A10"),
        ("NVIDIA A10", "NVIDIA-A10"),
        ("A100", "NVIDIA A100-SXM4-80GB"),
        ("A100-80GB", "NVIDIA A100-SXM4-80GB"),
        ("A100-80GB", "NVIDIA A100 80GB PCIe"),
        ("V100-32GB", "Tesla V100-SXM2-32GB"),
        ("H100", "NVIDIA H100 80GB HBM3"),
        ("RTX4090", "NVIDIA GeForce RTX 4090"),
        ("RTX-4090", "NVIDIA GeForce RTX 4090"),
        ("4090", "NVIDIA GeForce RTX 4090"),
        ("L4", "NVIDIA L4"),
    ],
)
def test_a_product_is_meant_by_its_words(wanted, product):
    assert product_matches(wanted, product)


@pytest.mark.parametrize(
    ("wanted", "product"),
    [
        ("A10", "NVIDIA A100-SXM4-40GB"),
        ("A10", "NVIDIA A10G"),
        ("L4", "NVIDIA L40"),
        ("A100", "NVIDIA A10"),
        ("A4", "NVIDIA A100-SXM4-80GB"),
        ("A100-40GB", "NVIDIA A100-SXM4-80GB"),
        ("80GB-A100", "NVIDIA A100-SXM4-80GB"),
        ("NVIDIA A10 24GB", "NVIDIA A10"),
        ("H100", ""),
    ],
)
def test_another_product_is_not(wanted, product):
    assert not product_matches(wanted, product)
