"""What became of the questions to one verifier. Changed on the loop alone."""

from dataclasses import dataclass

from auth.credentials import Answer, VerifyResult


@dataclass(slots=True)
class Tally:
    """asked        questions that were answered, rechecks of open connections among them
    valid, invalid  credentials that were compared
    unavailable     nothing was compared: the verifier failed, has no answer, or too many logins wait
    continued       answers that an exchange goes on with: SCRAM keys, messages of Kerberos. The outcome is unknown
    is_answering    something was compared for the last question; true before the first
    seconds         that its threads took, the longest answer among them
    """

    asked: int = 0
    valid: int = 0
    invalid: int = 0
    unavailable: int = 0
    continued: int = 0
    is_answering: bool = True
    seconds: float = 0.0
    longest_s: float = 0.0

    def take(self, answer: Answer, seconds: float) -> None:
        """seconds  that the answer took; 0 where nobody was asked"""
        self.asked += 1
        self.seconds += seconds
        self.longest_s = max(self.longest_s, seconds)
        self.is_answering = not isinstance(answer, VerifyResult) or answer.is_compared
        if not isinstance(answer, VerifyResult):
            self.continued += 1
        elif not answer.is_compared:
            self.unavailable += 1
        elif answer.is_valid:
            self.valid += 1
        else:
            self.invalid += 1
