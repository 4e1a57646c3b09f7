"""The fuzzing campaign runs, and finds what is wrong when something is."""

import pytest
from campaign import CAMPAIGNS, Campaign, run


@pytest.mark.parametrize("campaign", CAMPAIGNS, ids=lambda each: each.name)
def test_a_few_inputs_of_every_kind(campaign: Campaign) -> None:
    """routing 95, policy 8: the long runs are by hand (docs/reliability.md)."""
    assert run(campaign, 100 if campaign.name == "whole connections" else 400, seed=20261120)


def test_an_undocumented_exception_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    def broken(data: bytes) -> None:
        raise KeyError(len(data))

    assert not run(Campaign("broken", broken, [b"seed"], 1), 3, seed=1)
    assert "broken: input 0: KeyError" in capsys.readouterr().out
