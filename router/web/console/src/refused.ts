/** What the management agent refused. */
export class Refused extends Error {
    constructor(readonly status: number, message: string) {
        super(message);
    }
}
