"""Counts the results of one verifier. Changed only on the event loop."""

from dataclasses import dataclass

from auth.credentials import Answer, VerifyResult


@dataclass(slots=True)
class Tally:
    """The counters of one verifier.

    asked        answered questions, including rechecks of open connections
    valid, invalid  credentials that were compared
    unavailable     nothing was compared: the verifier failed, has no answer, or too many logins wait
    continued       answers that continue an exchange: SCRAM keys, Kerberos messages. The outcome is still unknown
    is_answering    True if something was compared for the last question, and before the first
    seconds         the total time of its threads; `longest_s` is the longest answer
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
        """Counts an answer.

        seconds  that the answer took; 0 if the verifier was not called
        """
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
